#!/usr/bin/env bash
# `make sanitize`: builds everything with a sanitizer and runs the tests that share memory, parse, or call C, and a whole
# system. A report fails the run, whichever process made it: each process writes its own into one folder.
# RATCHET_SANITIZE: thread, or address (with undefined behaviour of the C targets, and leaks); both by default.
# RATCHET_SANITIZE_ONLY: a regular expression; only tests with such names.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

export RATCHET_SHARED=${RATCHET_SHARED:-../shared}
RATCHET_SHARED=$(cd "$RATCHET_SHARED" 2>/dev/null && pwd) || {
    printf 'sanitize: the folder with vectors and certificates is missing: set RATCHET_SHARED (now ../shared)\n' >&2
    exit 2
}
case ${RATCHET_SANITIZE:-} in
    '') sanitizers=(thread address) ;;
    thread | address) sanitizers=("$RATCHET_SANITIZE") ;;
    *)
        printf 'sanitize: RATCHET_SANITIZE is thread or address\n' >&2
        exit 2
        ;;
esac

units='^(BytesTests|WireTests|JobsTests|EventLoopTests|HTTPTests|HTTPClientTests|AppleAdsTests|RedisTests|PostgresTests'
units+='|TrustTests|RedisQueueTests|StoreTests|ServiceTests|IngressTests|WorkerTests|SweeperTests)\.'
systems='^EndToEnd\.(WholeSystemTests|EnrolmentTests)'
filters=("$units" "$systems")
[[ -z ${RATCHET_SANITIZE_ONLY:-} ]] || filters=("$RATCHET_SANITIZE_ONLY")
# A test that hangs shall not hold up a machine for ever. Many times as long as all takes on an idle machine: one that
# builds other things beside took more than 1500 s.
longest_seconds=5400
marks='WARNING: ThreadSanitizer|ERROR: (Address|Leak)Sanitizer|runtime error:|FATAL: |CHECK failed'
sanitized=()
failed=0

sanitize() {
    local sanitizer=$1 scratch=$PWD/.build/${1:0:1}san began=$SECONDS
    local reports=$scratch/reports output=$scratch/output object=$scratch/sanitizer.o filter tests found verdict=passed
    local build=(--sanitize "$sanitizer" --scratch-path "$scratch" --explicit-target-dependency-import-check error
        -Xlinker "$object")
    # vptr needs a C++ runtime that is not linked.
    [[ $sanitizer == thread ]] || build+=(-Xcc -fsanitize=undefined -Xcc -fno-sanitize=vptr)
    rm -rf "$reports" "$output"
    mkdir -p "$reports"

    printf '\n== %s sanitizer: building\n' "$sanitizer"
    # Only when it is new: the build does not see that an object of the linker's command line has changed.
    if [[ ! -e $object || deploy/dev/sanitizers/$sanitizer.c -nt $object ]]; then
        rm -f "$scratch"/debug/ratchet* 2>/dev/null
        clang -O1 -Wall -Wextra -Werror -c "deploy/dev/sanitizers/$sanitizer.c" -o "$object" || return 1
    fi
    swift build --build-tests "${build[@]}" </dev/null || return 1

    # One test at a time: all is several times slower, and tests hold what they test to time-outs.
    for filter in "${filters[@]}"; do
        printf '\n== %s sanitizer: %s\n' "$sanitizer" "$filter"
        TSAN_OPTIONS="log_path=$reports/report halt_on_error=0" \
            ASAN_OPTIONS="log_path=$reports/report detect_leaks=1" \
            LSAN_OPTIONS="suppressions=$PWD/deploy/dev/sanitizers/leak.supp print_suppressions=0" \
            UBSAN_OPTIONS="log_path=$reports/report print_stacktrace=1" \
            timeout --kill-after=30 "$longest_seconds" \
            swift test --skip-build "${build[@]}" --disable-xctest --no-parallel --filter "$filter" </dev/null 2>&1 \
            | tee -a "$output" | grep --line-buffered -E '^✘|^. Test run with|^error:|Fatal error'
        case ${PIPESTATUS[0]} in
            0) ;;
            124 | 137)
                verdict=FAILED
                printf 'sanitize: not done after %d s: %s\n' "$longest_seconds" "$filter"
                ;;
            *) verdict=FAILED ;;
        esac
    done

    tests=$(sed -nE 's/^. Test run with ([0-9]+) tests? .*/\1/p' "$output" | awk '{ sum += $1 } END { print sum + 0 }')
    found=$(cat "$reports"/* 2>/dev/null | grep -cE "$marks")
    ((${tests:-0} > 0)) || verdict=FAILED
    if ((found > 0)); then
        verdict=FAILED
        grep -hE 'SUMMARY: |runtime error:' "$reports"/* | sort | uniq -c | sort -rn | head -n 20
    fi
    sanitized+=("$(printf 'sanitize: %s: %s, %d tests run, %d reports%s, %d s' "$sanitizer" "$verdict" "${tests:-0}" \
        "$found" "$( ((found == 0)) || printf ' in %s' "$reports")" $((SECONDS - began)))")
    [[ $verdict == passed ]]
}

for sanitizer in "${sanitizers[@]}"; do
    sanitize "$sanitizer" || failed=1
done
printf '\n'
((${#sanitized[@]} == 0)) || printf '%s\n' "${sanitized[@]}"
((${#sanitized[@]} == ${#sanitizers[@]})) || printf 'sanitize: FAILED: a build\n'
exit "$failed"
