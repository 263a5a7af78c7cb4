// The part of libpq that the Postgres connector calls. No system header but stdint is included here: what libpq's own
// header pulls in clashes with Swift's Glibc module in debug builds.
#ifndef RATCHET_CLIBPQ_H
#define RATCHET_CLIBPQ_H

#include <stdint.h>

typedef struct clibpq_connection clibpq_connection;   ///< libpq's PGconn.
typedef struct clibpq_result clibpq_result;           ///< libpq's PGresult.

enum { clibpq_poll_failed = 0, clibpq_poll_reading = 1, clibpq_poll_writing = 2, clibpq_poll_ok = 3 };
enum { clibpq_result_done = 0, clibpq_result_rows = 1, clibpq_result_error = 2, clibpq_result_other = 3,
       clibpq_result_synced = 4, clibpq_result_skipped = 5 };
enum { clibpq_transaction_idle = 0, clibpq_transaction_open = 1, clibpq_transaction_failed = 2,
       clibpq_transaction_unknown = 3 };

/// Starts a connection without waiting for it (host names are looked up on the spot). NULL when out of memory.
clibpq_connection *clibpq_connect_start(const char *conninfo, const char *application_name);
int clibpq_connect_poll(clibpq_connection *connection);
int clibpq_set_nonblocking(clibpq_connection *connection);
int clibpq_socket(const clibpq_connection *connection);
/// 1 while the connection is good.
int clibpq_is_good(const clibpq_connection *connection);
int clibpq_transaction_status(const clibpq_connection *connection);
int clibpq_backend_pid(const clibpq_connection *connection);
const char *clibpq_error_message(const clibpq_connection *connection);
void clibpq_finish(clibpq_connection *connection);

typedef void (*clibpq_notice_receiver)(void *context, const char *sqlstate, const char *message);
/// The function that gets the notices of all connections; to be set once, before the first connection is opened.
/// SQLSTATE and message are never NULL.
void clibpq_set_notice_receiver(clibpq_notice_receiver receiver);
/// Sends this connection's notices to the receiver, with this context, instead of printing them on stderr.
void clibpq_on_notice(clibpq_connection *connection, void *context);

/// Each answers 1 when the request was queued.
int clibpq_send_script(clibpq_connection *connection, const char *sql);
int clibpq_send_prepare(clibpq_connection *connection, const char *name, const char *sql, int count,
                        const uint32_t *types);
/// All parameters are sent in binary format; a NULL value is SQL's NULL. Results come back as text.
int clibpq_send_query(clibpq_connection *connection, const char *sql, int count, const uint32_t *types,
                      const uint8_t *const *values, const int *lengths);
int clibpq_send_prepared(clibpq_connection *connection, const char *name, int count, const uint8_t *const *values,
                         const int *lengths);
/// What is sent after `enter` is answered in order: each statement's results, then NULL; `clibpq_result_skipped` for
/// what follows a failed one; `clibpq_result_synced` for the sync, which ends the transaction that all of it was.
int clibpq_enter_pipeline(clibpq_connection *connection);
int clibpq_send_sync(clibpq_connection *connection);
int clibpq_exit_pipeline(clibpq_connection *connection);
/// 0 all sent, 1 more to send, -1 failed.
int clibpq_flush(clibpq_connection *connection);
/// Reads some 16 kB at the most.
int clibpq_consume_input(clibpq_connection *connection);
/// 1 when there is more to consume now, or the connection was lost.
int clibpq_has_input(const clibpq_connection *connection);
int clibpq_is_busy(clibpq_connection *connection);
/// NULL when the request has no more results.
clibpq_result *clibpq_get_result(clibpq_connection *connection);

int clibpq_result_kind(const clibpq_result *result);
/// SQLSTATE, message, detail and constraint of an error; "" when absent, never NULL.
const char *clibpq_result_sqlstate(const clibpq_result *result);
const char *clibpq_result_message(const clibpq_result *result);
const char *clibpq_result_detail(const clibpq_result *result);
const char *clibpq_result_constraint(const clibpq_result *result);
const char *clibpq_command_tag(clibpq_result *result);
const char *clibpq_command_rows(clibpq_result *result);
int clibpq_row_count(const clibpq_result *result);
int clibpq_column_count(const clibpq_result *result);
const char *clibpq_column_name(const clibpq_result *result, int column);
int clibpq_is_null(const clibpq_result *result, int row, int column);
const char *clibpq_value(const clibpq_result *result, int row, int column);
int clibpq_length(const clibpq_result *result, int row, int column);
void clibpq_clear(clibpq_result *result);

#endif
