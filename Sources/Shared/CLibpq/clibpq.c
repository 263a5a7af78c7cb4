#include "CLibpq.h"

#include <poll.h>

#include <postgresql/libpq-fe.h>

static PGconn *raw(const clibpq_connection *connection) { return (PGconn *)connection; }
static PGresult *raw_result(const clibpq_result *result) { return (PGresult *)result; }
static const char *text(const char *value) { return value ? value : ""; }

clibpq_connection *clibpq_connect_start(const char *conninfo, const char *application_name) {
    // A later keyword overrides an earlier one; dbname is expanded where it stands, so its own settings come first.
    const char *keywords[] = {"fallback_application_name", "dbname", "client_encoding", NULL};
    const char *values[] = {application_name, conninfo, "UTF8", NULL};
    return (clibpq_connection *)PQconnectStartParams(keywords, values, 1);
}

int clibpq_connect_poll(clibpq_connection *connection) {
    switch (PQconnectPoll(raw(connection))) {
    case PGRES_POLLING_OK: return clibpq_poll_ok;
    case PGRES_POLLING_READING: return clibpq_poll_reading;
    case PGRES_POLLING_WRITING: return clibpq_poll_writing;
    default: return clibpq_poll_failed;
    }
}

int clibpq_set_nonblocking(clibpq_connection *connection) { return PQsetnonblocking(raw(connection), 1); }
int clibpq_socket(const clibpq_connection *connection) { return PQsocket(raw(connection)); }
int clibpq_is_good(const clibpq_connection *connection) { return PQstatus(raw(connection)) != CONNECTION_BAD; }
int clibpq_backend_pid(const clibpq_connection *connection) { return PQbackendPID(raw(connection)); }
const char *clibpq_error_message(const clibpq_connection *connection) { return text(PQerrorMessage(raw(connection))); }
void clibpq_finish(clibpq_connection *connection) { PQfinish(raw(connection)); }

int clibpq_transaction_status(const clibpq_connection *connection) {
    switch (PQtransactionStatus(raw(connection))) {
    case PQTRANS_IDLE: return clibpq_transaction_idle;
    case PQTRANS_INTRANS: return clibpq_transaction_open;
    case PQTRANS_INERROR: return clibpq_transaction_failed;
    default: return clibpq_transaction_unknown;
    }
}

// libpq hands its receiver one pointer, which the caller's context takes; so the function itself is set once for all
// connections, before the first of them is opened.
static clibpq_notice_receiver notice_receiver;

static void receive_notice(void *context, const PGresult *result) {
    notice_receiver(context, text(PQresultErrorField(result, PG_DIAG_SQLSTATE)),
                    text(PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY)));
}

void clibpq_set_notice_receiver(clibpq_notice_receiver receiver) { notice_receiver = receiver; }

void clibpq_on_notice(clibpq_connection *connection, void *context) {
    PQsetNoticeReceiver(raw(connection), receive_notice, context);
}

int clibpq_send_script(clibpq_connection *connection, const char *sql) { return PQsendQuery(raw(connection), sql); }

int clibpq_send_prepare(clibpq_connection *connection, const char *name, const char *sql, int count,
                        const uint32_t *types) {
    return PQsendPrepare(raw(connection), name, sql, count, types);
}

// Formats of up to 64 parameters, all binary.
enum { most_parameters = 64 };
static const int all_binary[most_parameters] = {
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

int clibpq_send_query(clibpq_connection *connection, const char *sql, int count, const uint32_t *types,
                      const uint8_t *const *values, const int *lengths) {
    if (count < 0 || count > most_parameters) return 0;
    return PQsendQueryParams(raw(connection), sql, count, types, (const char *const *)values, lengths, all_binary, 0);
}

int clibpq_send_prepared(clibpq_connection *connection, const char *name, int count, const uint8_t *const *values,
                         const int *lengths) {
    if (count < 0 || count > most_parameters) return 0;
    return PQsendQueryPrepared(raw(connection), name, count, (const char *const *)values, lengths, all_binary, 0);
}

int clibpq_enter_pipeline(clibpq_connection *connection) { return PQenterPipelineMode(raw(connection)); }
int clibpq_send_sync(clibpq_connection *connection) { return PQpipelineSync(raw(connection)); }
int clibpq_exit_pipeline(clibpq_connection *connection) { return PQexitPipelineMode(raw(connection)); }

int clibpq_flush(clibpq_connection *connection) { return PQflush(raw(connection)); }
int clibpq_consume_input(clibpq_connection *connection) { return PQconsumeInput(raw(connection)); }
int clibpq_has_input(const clibpq_connection *connection) {
    struct pollfd socket = {.fd = PQsocket(raw(connection)), .events = POLLIN};
    return poll(&socket, 1, 0) == 1;
}
int clibpq_is_busy(clibpq_connection *connection) { return PQisBusy(raw(connection)); }
clibpq_result *clibpq_get_result(clibpq_connection *connection) {
    return (clibpq_result *)PQgetResult(raw(connection));
}

int clibpq_result_kind(const clibpq_result *result) {
    switch (PQresultStatus(raw_result(result))) {
    case PGRES_EMPTY_QUERY:
    case PGRES_COMMAND_OK: return clibpq_result_done;
    case PGRES_TUPLES_OK: return clibpq_result_rows;
    case PGRES_PIPELINE_SYNC: return clibpq_result_synced;
    case PGRES_PIPELINE_ABORTED: return clibpq_result_skipped;
    case PGRES_BAD_RESPONSE:
    case PGRES_NONFATAL_ERROR:
    case PGRES_FATAL_ERROR: return clibpq_result_error;
    default: return clibpq_result_other;
    }
}

const char *clibpq_result_sqlstate(const clibpq_result *result) {
    return text(PQresultErrorField(raw_result(result), PG_DIAG_SQLSTATE));
}
const char *clibpq_result_message(const clibpq_result *result) {
    const char *primary = PQresultErrorField(raw_result(result), PG_DIAG_MESSAGE_PRIMARY);
    return primary ? primary : text(PQresultErrorMessage(raw_result(result)));
}
const char *clibpq_result_detail(const clibpq_result *result) {
    return text(PQresultErrorField(raw_result(result), PG_DIAG_MESSAGE_DETAIL));
}
const char *clibpq_result_constraint(const clibpq_result *result) {
    return text(PQresultErrorField(raw_result(result), PG_DIAG_CONSTRAINT_NAME));
}
const char *clibpq_command_tag(clibpq_result *result) { return text(PQcmdStatus(raw_result(result))); }
const char *clibpq_command_rows(clibpq_result *result) { return text(PQcmdTuples(raw_result(result))); }
int clibpq_row_count(const clibpq_result *result) { return PQntuples(raw_result(result)); }
int clibpq_column_count(const clibpq_result *result) { return PQnfields(raw_result(result)); }
const char *clibpq_column_name(const clibpq_result *result, int column) {
    return text(PQfname(raw_result(result), column));
}
int clibpq_is_null(const clibpq_result *result, int row, int column) {
    return PQgetisnull(raw_result(result), row, column);
}
const char *clibpq_value(const clibpq_result *result, int row, int column) {
    return text(PQgetvalue(raw_result(result), row, column));
}
int clibpq_length(const clibpq_result *result, int row, int column) {
    return PQgetlength(raw_result(result), row, column);
}
void clibpq_clear(clibpq_result *result) { PQclear(raw_result(result)); }
