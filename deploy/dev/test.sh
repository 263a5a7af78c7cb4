#!/usr/bin/env bash
# `make test`: every test, in the order of what they cost. Goes on after a failure where that tells more, and ends with
# exit code 1 when anything failed.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
began=$SECONDS
step() { printf '\n== %s (%d s so far)\n' "$*" $((SECONDS - began)); }
failures=()

export RATCHET_SHARED=${RATCHET_SHARED:-../shared}
RATCHET_SHARED=$(cd "$RATCHET_SHARED" 2>/dev/null && pwd) || {
    printf 'test: the folder with vectors and certificates is missing: set RATCHET_SHARED (now ../shared)\n' >&2
    exit 1
}

build=(--explicit-target-dependency-import-check error)
step 'building the tests'
swift build --build-tests "${build[@]}" </dev/null || {
    printf 'test: the build failed\n' >&2
    exit 1
}

# A test that hangs shall not hold up a machine for ever.
longest_seconds=1500
swift_tests() {
    timeout --kill-after=30 "$longest_seconds" swift test --skip-build "${build[@]}" "$@" </dev/null
    case $? in
        0) ;;
        124 | 137) failures+=("swift test $* (not done after $longest_seconds s)") ;;
        *) failures+=("swift test $*") ;;
    esac
}
step 'unit and integration tests'
# More at a time than a small machine has processors for only take turns, and none gets done before its clients are
# given up: on a busy machine 400 tests at once took 110 s, and eight at a time 40.
export SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=8
swift_tests --skip EndToEnd
# By itself, and one test at a time: they measure a whole system against the clock of its own time-outs.
step 'end to end'
swift_tests --no-parallel --filter EndToEnd

step 'files of deploy/'
Tests/Commands/deploy-files.sh </dev/null || failures+=('Tests/Commands/deploy-files.sh')
step 'a stopped benchmark'
Tests/Commands/bench-stops.py </dev/null || failures+=('Tests/Commands/bench-stops.py')
step 'make run with stand-ins'
Tests/Commands/make-run.sh fake </dev/null || failures+=('Tests/Commands/make-run.sh fake')
step 'make run'
Tests/Commands/make-run.sh real </dev/null || failures+=('Tests/Commands/make-run.sh real')

step 'done'
if ((${#failures[@]} > 0)); then
    printf 'test: FAILED: %s\n' "${failures[@]}"
    exit 1
fi
printf 'test: all passed\n'
