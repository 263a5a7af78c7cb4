#!/usr/bin/env bash
# Checks what can be checked without building. Prints each finding; exit code 1 when there is one.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
found=0
finding() {
    printf 'lint: %s\n' "$*" >&2
    found=1
}

command -v swift >/dev/null || { printf 'lint: swift is missing\n' >&2 && exit 2; }
swift format lint --strict --configuration .swift-format --parallel -r Package.swift Sources Tests || found=1

# Tracked files, or all of them in a copy without a repository.
list() {
    git ls-files --cached --others --exclude-standard 2>/dev/null || find . -path ./.build -prune -o -type f -print
}
mapfile -t files < <(list)

for file in "${files[@]}"; do
    [[ -f $file ]] || continue
    first=$(head -n 1 "$file" | tr -d '\0')
    case $file:$first in
        *.sh:* | *:'#!'*bash)
            bash -n "$file" || found=1
            [[ -x $file ]] || finding "$file is a script but not executable"
            ;;
        *.py:*)
            python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$file" || found=1
            ;;
    esac
    case $file in
        *.h)
            # A public header that pulls in system headers clashes with Swift's own view of them in debug builds.
            awk -v file="$file" '/^ *# *include/ && !/<(stdint|stddef|stdbool)\.h>/ {
                printf "lint: %s:%d includes more than fixed-width types: %s\n", file, NR, $0; bad = 1
            } END { exit bad }' "$file" >&2 || found=1
            grep -q '^#ifndef RATCHET_' "$file" || finding "$file has no include guard RATCHET_…"
            ;;
    esac
    case $file in
        *.swift | *.c | *.cpp | *.h | *.sh | *.py | *.md | *.conf | *.service | *.target | *.sql | *Makefile)
            grep -nE '[[:blank:]]+$' "$file" /dev/null && finding "$file has trailing blanks"
            grep -nE '\b(TO''DO|FIX''ME|XX''X)\b' "$file" /dev/null && finding "$file holds an open mark"
            [[ ! -s $file || -z $(tail -c 1 "$file") ]] || finding "$file does not end with a newline"
            ;;
    esac
done

if command -v shellcheck >/dev/null; then
    mapfile -t scripts < <(printf '%s\n' "${files[@]}" | grep -E '\.sh$|^\.ci/run$')
    shellcheck "${scripts[@]}" || found=1
fi
((found == 0)) && printf 'lint: nothing found\n'
exit "$found"
