#!/usr/bin/env bash
# Tests `make run` itself, as a user meets it: started, used, hurt and stopped.
#   make-run.sh real   with the real programs (built by make run, or taken from RATCHET_BIN_DIR)
#   make-run.sh fake   with stand-ins, which take a second: more ways to hurt it
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
mode=${1:-}
case $mode in
    real) seconds_to_ready=1500 ;; # the first start builds
    fake) export RATCHET_BIN_DIR=$PWD/Tests/Commands/fake seconds_to_ready=90 ;;
    *) echo "usage: $0 real|fake" >&2 && exit 2 ;;
esac
temporary=$(mktemp -d /tmp/ratchet-test.XXXXXX)
chmod 711 "$temporary"
passed=0 failed=0
groups=()

# Only what this script started is ended, by its process group.
finish() {
    local group
    for group in "${groups[@]}"; do kill -TERM -- "-$group" 2>/dev/null; done
    for group in "${groups[@]}"; do wait "$group" 2>/dev/null; done
    rm -rf "$temporary"
}
trap finish EXIT

check() { # check <claim> <command...>
    local claim=$1
    shift
    if "$@" >"$temporary/said" 2>&1; then
        passed=$((passed + 1))
        printf 'ok      %s: %s\n' "$mode" "$claim"
    else
        failed=$((failed + 1))
        printf 'FAILED  %s: %s\n' "$mode" "$claim"
        sed 's/^/        /' "$temporary/said"
    fi
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# A background job of a script ignores SIGINT; on a terminal nothing does.
as_on_a_terminal='import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.setsid()
os.execvp(sys.argv[1], sys.argv[1:])'
start() { # start <data> <port>: sets `group`, the pid of make and of its process group
    : >"$temporary/out" # the job below opens it a moment later
    # A setting that is given here alone shows whether <data>/ratchet was told of it.
    RATCHET_DATA=$1 RATCHET_INGRESS_PORT=$2 RATCHET_PG_SCHEMA=elsewhere python3 -c "$as_on_a_terminal" make --no-print-directory run \
        >"$temporary/out" 2>&1 </dev/null &
    group=$!
    groups+=("$group")
}

within() { # within <seconds> <command...>: true as soon as the command is
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}

says_ready() { grep -q '^ratchet: ready  http://127.0.0.1:' "$temporary/out"; }
alive() { kill -0 "$1" 2>/dev/null; }
ended() { ! alive "$1"; }
ready_or_dead() { says_ready || ended "$group"; }

becomes_ready() {
    within "$seconds_to_ready" ready_or_dead
    says_ready || { cat "$temporary/out" "$1"/log/*.log && false; }
}

stops() { # stops <make's pid>: ends within the grace
    within 60 ended "$1" || { cat "$temporary/out" && false; }
}

# Processes that belong to a data folder: by the supervisor's mark, their folder or their arguments.
processes_of() {
    python3 - "$1" <<'PYTHON'
import os, sys
data = os.path.realpath(sys.argv[1]).encode()
for entry in os.listdir("/proc"):
    if not entry.isdigit() or int(entry) == os.getpid():
        continue
    try:
        environment = open(f"/proc/{entry}/environ", "rb").read()
        arguments = open(f"/proc/{entry}/cmdline", "rb").read()
        folder = os.readlink(f"/proc/{entry}/cwd").encode()
    except OSError:
        continue
    marked = b"RATCHET_SUPERVISED=" + data + b"/" in environment or b"RATCHET_DATA=" + data + b"\0" in environment
    if marked or folder.startswith(data + b"/") or data + b"/" in arguments:
        print(entry, arguments.replace(b"\0", b" ").decode())
PYTHON
}

nothing_left() { # nothing_left <data>
    local left
    left=$(
        processes_of "$1"
        find "$1" \( -type s -o -name '*.pid' -o -name '*.ops' -o -name '*.lock' \) -print
        find /tmp -maxdepth 1 -name "ratchet-$UID-*" -newer "$temporary/began" -print
    )
    [[ -z $left ]] || { printf '%s\n' "$left" && false; }
}

identify() { # identify <port>: the answer to one call
    curl -sS --max-time 5 -w ' %{http_code}' "http://127.0.0.1:$1/api/sdk/v1/identify" \
        -d '{"bundleId":"com.example.app","appUserId":"user_42","attributes":{"plan":"trial"}}'
}
answers_identify() {
    local answer
    answer=$(identify "$1")
    [[ $answer == *'"ok":'*true*' 200' ]] || { printf '%s\n' "$answer" && false; }
}

kill_and_see_restarted() { # kill_and_see_restarted <data> <name>
    local file=$1/run/$2.pid before
    before=$(cat "$file") && kill -9 "$before" || return 1
    another() { [[ -s $file && $(cat "$file") != "$before" ]] && alive "$(cat "$file")"; }
    within 20 another || { cat "$temporary/out" && false; }
}

all_ready() { # every process's own /readyz
    local name
    for name in ingress verifier writer sweeper; do
        curl -sf --max-time 2 "http://$(cat "$1/run/$name.ops" 2>/dev/null)/readyz" >/dev/null || return 1
    done
}

redis_says() { [[ $(redis-cli -s "$1/redis.sock" config get "$2" | tail -1) == "$3" ]]; }
postgres_says() { [[ $(psql -XAtq -h "$1/pgsock" -p 5432 -U ratchet ratchet -c "show $2") == "$3" ]]; }

refused() { # refused <pattern> <data> <port>: a start ends at once with one line that matches
    local output status
    output=$(RATCHET_DATA=$2 RATCHET_INGRESS_PORT=$3 python3 deploy/dev/run.py 2>&1 </dev/null)
    status=$?
    printf '%s (exit code %s)\n' "$output" "$status"
    [[ $status == 1 && $(wc -l <<<"$output") == 1 && $output =~ $1 ]]
}

touch "$temporary/began"
data=$temporary/one port=$(free_port)
start "$data" "$port"
check 'a fresh data folder becomes ready' becomes_ready "$data"
check 'three curl lines are printed' test "$(grep -c '^  curl ' "$temporary/out")" = 3
check 'identify is answered' answers_identify "$port"
check 'the printed identify line works' bash -c "$(grep -m1 '^  curl ' "$temporary/out") | grep -q '\"ok\": *true'"
check 'every process has its pid file' test "$(cat "$data"/run/{ingress,verifier,writer,sweeper,redis,postgres}.pid | wc -l)" = 6
check 'the secret is private' test "$(stat -c %a "$data/secret")" = 600
check 'Redis syncs each write' redis_says "$data" appendfsync always
check 'Redis evicts nothing' redis_says "$data" maxmemory-policy noeviction
check 'Postgres uses deploy/postgresql.conf' postgres_says "$data" checkpoint_timeout 15min
check 'Postgres commits to disk' postgres_says "$data" synchronous_commit on
check 'a second start on the same data is refused' refused 'already running on .* \(pid [0-9]+\)' "$data" "$(free_port)"
check 'a port in use is named' refused "port $port is in use" "$temporary/two" "$port"
for name in ingress verifier writer sweeper redis postgres; do
    check "$name killed with SIGKILL is started again" kill_and_see_restarted "$data" "$name"
done
check 'all of them are ready again' within 40 all_ready "$data"
check 'identify is answered again' within 10 answers_identify "$port"
if [[ $mode == real ]]; then
    shows() { "$data/ratchet" customers show user_42 --org demo --json | grep -q '"plan"'; }
    check 'the CLI shows the customer' within 20 shows
    healthy() { "$data/ratchet" doctor --json | grep -q '"status": "ok"' && ! "$data/ratchet" doctor | grep -vq '^ok'; }
    check 'doctor finds nothing to say' within 20 healthy
    lacks() { ! ldd "$1" | grep -q "$2"; }
    binaries=${RATCHET_BIN_DIR:-.build/release}
    check 'ratchet-ingress links no Postgres' lacks "$binaries/ratchet-ingress" libpq
    check 'ratchet-verifier links no Postgres' lacks "$binaries/ratchet-verifier" libpq
    check 'ratchet-sweeper links no Redis' lacks "$binaries/ratchet-sweeper" libhiredis
fi
kill -INT -- "-$group"
check 'Ctrl-C stops it' stops "$group"
check 'Ctrl-C leaves nothing behind' nothing_left "$data"

start "$data" "$port"
check 'the same data starts again' becomes_ready "$data"
[[ $mode != real ]] || check 'the data is still there' within 20 shows
kill -TERM "$group"
check 'SIGTERM to make stops it' stops "$group"
check 'SIGTERM leaves nothing behind' nothing_left "$data"

if [[ $mode == fake ]]; then
    check 'it stops in order' test "$(tail -4 "$data/stops" | xargs)" = 'ingress verifier writer sweeper'

    start "$data" "$port"
    becomes_ready "$data" >/dev/null
    kill -INT "$group"
    check 'SIGINT to make alone stops it' stops "$group"
    check 'SIGINT to make alone leaves nothing behind' nothing_left "$data"

    start "$data" "$port"
    becomes_ready "$data" >/dev/null
    kill -KILL "$(cat "$data/lock")"
    wait "$group" 2>/dev/null
    start "$data" "$port"
    check 'a start right after the supervisor was killed becomes ready' becomes_ready "$data"

    # Even without the parent-death signal: a start clears away what still runs.
    first=$group other=$temporary/other other_port=$(free_port)
    start "$other" "$other_port"
    check 'another copy runs beside it' becomes_ready "$other"
    check 'both answer' eval 'answers_identify "$port" && answers_identify "$other_port"'
    kill -INT -- "-$group"
    check 'the other copy stops alone' stops "$group"
    check 'the other copy leaves nothing behind' nothing_left "$other"
    check 'the first copy is untouched' all_ready "$data"
    kill -INT -- "-$first"
    check 'the first copy stops' stops "$first"

    for pid_file in ingress writer; do echo $$ >"$data/run/$pid_file.pid"; done
    printf '%s\n' $$ "$data/postgres" >"$data/postgres/postmaster.pid"
    start "$data" "$port"
    check 'stale pid files that name a stranger hinder nothing and nobody' becomes_ready "$data"
    kill -INT -- "-$group"
    stops "$group"

    deep=$temporary/$(printf 'a-long-name-%.0s' {1..9})
    start "$deep" "$port"
    check 'a long path puts the sockets elsewhere' becomes_ready "$deep"
    check 'and says where' grep -q 'sockets are in /tmp/ratchet-' "$temporary/out"
    kill -INT -- "-$group"
    check 'a long path stops' stops "$group"
    check 'a long path leaves nothing behind' nothing_left "$deep"

    if ((EUID == 0)); then
        mkdir -m 700 "$temporary/closed"
        start "$temporary/closed/data" "$port"
        check 'a folder closed to postgres still becomes ready' becomes_ready "$temporary/closed/data"
        kill -INT -- "-$group"
        check 'a closed folder stops' stops "$group"
        check 'a closed folder leaves nothing behind' nothing_left "$temporary/closed/data"
        elsewhere=$(sed -n 's/.*the cluster is in \(.*\)\/postgres$/\1/p' "$temporary/out")
        RATCHET_DATA=$temporary/closed/data python3 deploy/dev/run.py --remove-data >"$temporary/said"
        check 'its data can be removed' test -n "$elsewhere" -a ! -e "$elsewhere"
    fi

    FAKE_DEAF=verifier start "$data" "$port"
    becomes_ready "$data" >/dev/null
    kill -INT -- "-$group"
    within 10 grep -q 'stopping verifier' "$temporary/out"
    sleep 1.2 # signals within a second of the first are the same wish
    kill -INT -- "-$group"
    check 'a second Ctrl-C ends a process that does not listen' within 10 ended "$group"
    check 'a second Ctrl-C leaves nothing behind' nothing_left "$data"

    check 'a wrong port is named' refused "RATCHET_INGRESS_PORT is 'eighty'" "$data" eighty
    check 'binaries that are missing are named' \
        env RATCHET_BIN_DIR=/nowhere bash -c '! RATCHET_DATA=$0 python3 deploy/dev/run.py >"$0/said" && grep -q "/nowhere/ratchet is missing" "$0/said"' "$data"
fi

printf '%s: %d passed, %d failed\n' "make run ($mode)" "$passed" "$failed"
((failed == 0))
