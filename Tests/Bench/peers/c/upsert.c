// The least a writer can do: N rows a statement by one prepared `INSERT ... SELECT FROM unnest ... ON CONFLICT DO
// UPDATE` over libpq, arrays in binary form, one commit a statement. No joins, no queue, nothing to parse.
//
//   upsert CONNINFO ROWS ROWS_A_STATEMENT USERS
//
// Makes the table `plain` anew with all users in it, then writes ROWS rows over them and prints one line of JSON.
#include <libpq-fe.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COLUMNS = 9, MOST = 4096 };
// Types by their fixed numbers in pg_type: uuid, text, bigint, jsonb, and the arrays of them.
static const Oid types[COLUMNS] = {2950, 25, 25, 25, 25, 25, 25, 20, 3802};
static const Oid arrays[COLUMNS] = {2951, 1009, 1009, 1009, 1009, 1009, 1009, 1016, 3807};

static struct { char *bytes; size_t size, room; } columns[COLUMNS];

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void add(int column, const void *bytes, size_t size) {
    if (columns[column].size + size > columns[column].room) {
        columns[column].room = 2 * columns[column].room + size;
        columns[column].bytes = realloc(columns[column].bytes, columns[column].room);
        if (!columns[column].bytes) abort();
    }
    memcpy(columns[column].bytes + columns[column].size, bytes, size);
    columns[column].size += size;
}

static void add32(int column, uint32_t value) {
    value = __builtin_bswap32(value);
    add(column, &value, 4);
}

static void element(int column, const void *bytes, size_t size) {
    add32(column, size);
    add(column, bytes, size);
}

static void text(int column, const char *value) { element(column, value, strlen(value)); }

static void fail(PGconn *connection, const char *what) {
    fprintf(stderr, "upsert: %s: %s", what, PQerrorMessage(connection));
    exit(1);
}

static void order(PGconn *connection, const char *sql) {
    PGresult *result = PQexec(connection, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK) fail(connection, sql);
    PQclear(result);
}

static int64_t number(PGconn *connection, const char *sql) {
    PGresult *result = PQexec(connection, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK) fail(connection, sql);
    int64_t value = atoll(PQgetvalue(result, 0, 0));
    PQclear(result);
    return value;
}

// Time on a processor of the backend, which has one thread.
static double backend_seconds(int pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/schedstat", pid);
    FILE *file = fopen(path, "r");
    long long nanoseconds = 0;
    if (!file || fscanf(file, "%lld", &nanoseconds) != 1) nanoseconds = 0;
    if (file) fclose(file);
    return nanoseconds / 1e9;
}

// One statement of the rows from `first` on. Answers the number that Postgres says it wrote.
static int64_t statement(PGconn *connection, int64_t first, int rows, int users, int64_t stamp) {
    for (int column = 0; column < COLUMNS; column++) {
        columns[column].size = 0;
        add32(column, 1);
        add32(column, 0);
        add32(column, types[column]);
        add32(column, rows);
        add32(column, 1);
    }
    for (int64_t row = first; row < first + rows; row++) {
        int user = row * 7919 % users;
        // Spread as a hash is.
        uint64_t id[2] = {(user + 1) * 0x9e3779b97f4a7c15ull, (user + 1) * 0xc2b2ae3d27d4eb4full};
        char buffer[256];
        element(0, id, 16);
        snprintf(buffer, sizeof buffer, "org_%d", user % 10);
        text(1, buffer);
        snprintf(buffer, sizeof buffer, "$anon:%07dc0ffee8f14e45fceea167a5a36", user);
        text(2, buffer);
        text(3, user % 2 ? "ios" : "android");
        text(4, "17.4.1");
        text(5, "iPhone15,3");
        text(6, "en_US");
        uint64_t seen = __builtin_bswap64(stamp + row);
        element(7, &seen, 8);
        buffer[0] = 1;  // the version of jsonb's binary form
        int size = snprintf(
            buffer + 1, sizeof buffer - 1,
            "{\"email\":\"user%d.longer.name@example.com\",\"plan\":\"premium_yearly_%d\",\"utm_source\":"
            "\"spring_campaign_newsletter_2026_variant_b_second_wave_returning_users\"}", user, (int)(row % 7));
        element(8, buffer, size + 1);
    }
    const char *values[COLUMNS];
    int lengths[COLUMNS], formats[COLUMNS];
    for (int column = 0; column < COLUMNS; column++) {
        values[column] = columns[column].bytes;
        lengths[column] = columns[column].size;
        formats[column] = 1;
    }
    PGresult *result = PQexecPrepared(connection, "upsert", COLUMNS, values, lengths, formats, 1);
    if (PQresultStatus(result) != PGRES_COMMAND_OK) fail(connection, "upsert");
    int64_t written = atoll(PQcmdTuples(result));
    PQclear(result);
    return written;
}

int main(int count, char **arguments) {
    int64_t rows = count == 5 ? atoll(arguments[2]) : 0;
    int most = count == 5 ? atoi(arguments[3]) : 0, users = count == 5 ? atoi(arguments[4]) : 0;
    if (rows < 1 || most < 1 || most > MOST || users < most) {
        fprintf(stderr, "usage: upsert CONNINFO ROWS ROWS_A_STATEMENT USERS\n");
        return 2;
    }
    PGconn *connection = PQconnectdb(arguments[1]);
    if (PQstatus(connection) != CONNECTION_OK) fail(connection, "connect");
    order(connection, "SET client_min_messages = warning");
    order(connection, "DROP TABLE IF EXISTS plain");
    order(connection,
        "CREATE TABLE plain (id uuid PRIMARY KEY, organization text COLLATE \"C\" NOT NULL,"
        " app_user_id text COLLATE \"C\" NOT NULL, platform text, os_version text, device_model text,"
        " locale text, last_seen bigint NOT NULL,"
        " attributes jsonb NOT NULL) WITH (fillfactor = 80)");
    PGresult *result = PQprepare(connection, "upsert",
        "INSERT INTO plain AS p SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[],"
        " $6::text[], $7::text[], $8::bigint[], $9::jsonb[]) ON CONFLICT (id) DO UPDATE SET platform ="
        " excluded.platform, os_version = excluded.os_version, device_model = excluded.device_model, locale ="
        " excluded.locale, last_seen = excluded.last_seen, attributes = p.attributes || excluded.attributes",
        COLUMNS, arrays);
    if (PQresultStatus(result) != PGRES_COMMAND_OK) fail(connection, "prepare");
    PQclear(result);
    int64_t stamp = (int64_t)time(NULL) * 1000000;
    for (int64_t first = 0; first < users; first += MOST)
        statement(connection, first, users - first < MOST ? users - first : MOST, users, stamp);
    const char *wal = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    int64_t before = number(connection, wal), written = 0;
    int backend = PQbackendPID(connection);
    double own = now(CLOCK_PROCESS_CPUTIME_ID), theirs = backend_seconds(backend), began = now(CLOCK_MONOTONIC);
    for (int64_t first = 0; first < rows; first += most)
        written += statement(connection, users + first, rows - first < most ? rows - first : most, users, stamp);
    double seconds = now(CLOCK_MONOTONIC) - began;
    printf("{\"rows\":%lld,\"seconds\":%f,\"writerSeconds\":%f,\"backendSeconds\":%f,\"walBytes\":%lld}\n",
        (long long)written, seconds, now(CLOCK_PROCESS_CPUTIME_ID) - own, backend_seconds(backend) - theirs,
        (long long)(number(connection, wal) - before));
    PQfinish(connection);
    return 0;
}
