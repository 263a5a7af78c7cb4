#!/usr/bin/env bash
# Tests that the files of deploy/ are what the programs that read them accept. make-run.sh shows that redis.conf and
# postgresql.conf take effect.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
temporary=$(mktemp -d /tmp/ratchet-deploy.XXXXXX)
trap 'rm -rf "$temporary"' EXIT
passed=0 failed=0

check() { # check <claim> <command...>
    local claim=$1
    shift
    if "$@" >"$temporary/said" 2>&1; then
        passed=$((passed + 1))
        printf 'ok      %s\n' "$claim"
    else
        failed=$((failed + 1))
        printf 'FAILED  %s\n' "$claim"
        sed 's/^/        /' "$temporary/said"
    fi
}

nginx_accepts() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=ratchet.example.com \
        -keyout "$temporary/key.pem" -out "$temporary/certificate.pem" 2>/dev/null || return 1
    sed -e "s#/etc/letsencrypt/[^;]*fullchain.pem#$temporary/certificate.pem#" \
        -e "s#/etc/letsencrypt/[^;]*privkey.pem#$temporary/key.pem#" \
        -e "s#/var/log/nginx/#$temporary/#" deploy/nginx/ratchet.conf >"$temporary/site.conf"
    cat >"$temporary/nginx.conf" <<CONF
pid $temporary/nginx.pid;
error_log stderr warn;
events {}
http { include $temporary/site.conf; }
CONF
    # A warning (something deprecated or overridden) counts as well.
    local output
    output=$(PATH=$PATH:/usr/sbin nginx -t -p "$temporary" -c "$temporary/nginx.conf" 2>&1)
    local status=$?
    printf '%s\n' "$output"
    [[ $status == 0 && $output != *'[warn]'* ]]
}

# systemd looks the programs and the users up; both exist only on a machine where Ratchet is installed.
systemd_accepts() {
    mkdir -p "$temporary/units"
    local unit name output
    for unit in deploy/systemd/*; do
        name=$(basename "$unit")
        sed -E 's#/usr/local/bin/ratchet[a-z-]*#/bin/true#' "$unit" >"$temporary/units/$name"
    done
    for name in ratchet.target ratchet-ingress.service ratchet-verifier@1.service ratchet-writer@1.service \
        ratchet-sweeper@1.service; do
        [[ $name != *@1* ]] || cp "$temporary/units/${name/@1/@}" "$temporary/units/$name"
        output+=$(SYSTEMD_UNIT_PATH="$temporary/units:" systemd-analyze verify --man=no --recursive-errors=no \
            "$temporary/units/$name" 2>&1) || { printf '%s\n' "$output" && return 1; }
    done
    # Unknown settings are only warned of.
    output=$(grep "$temporary" <<<"$output")
    printf '%s\n' "$output"
    [[ -z $output ]]
}

every_unit_has() { # every_unit_has <line>
    local unit
    for unit in deploy/systemd/*.service; do
        grep -qx "$1" "$unit" || { printf '%s lacks %s\n' "$unit" "$1" && return 1; }
    done
}

# The file is read by systemd and by a shell alike.
env_example_is_read() {
    # shellcheck disable=SC1091
    (set -eu && . deploy/env.example && [[ -n $RATCHET_PG && -n $RATCHET_REDIS_URL ]]) &&
        ! grep -vE '^(#.*|RATCHET_[A-Z0-9_]+=.*|)$' deploy/env.example
}

check 'nginx accepts deploy/nginx/ratchet.conf' nginx_accepts
if command -v systemd-analyze >/dev/null; then
    check 'systemd accepts the units' systemd_accepts
else
    printf 'skipped the units: this machine has no systemd-analyze\n'
fi
check 'units restart always' every_unit_has 'Restart=always'
check 'units read /etc/ratchet/env' every_unit_has 'EnvironmentFile=/etc/ratchet/env'
check 'units give a process more than its grace of 20 s' every_unit_has 'TimeoutStopSec=30'
check 'env.example is read by a shell' env_example_is_read
check 'every command is listed by make help' bash -c '
    for name in run test lint build setup clean clean-data help; do make help | grep -q "^  make $name " || exit 1; done'

printf 'deploy files: %d passed, %d failed\n' "$passed" "$failed"
((failed == 0))
