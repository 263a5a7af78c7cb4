#!/usr/bin/env python3
"""`make bench-instructions`: how many instructions the hot paths take, compared with what is recorded.

Instructions (valgrind's callgrind) are the same whatever else the machine does, so a path that grew is seen without a
clock. Exit code 1 when one grew by more than 5 %. `--record` writes the recorded figures anew.
"""

import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
RECORDED = os.path.join(ROOT, "Tests", "Instructions", "recorded.json")
SCRATCH = os.path.join(ROOT, ".build", "instructions")
MOST_GROWTH = 0.05
# Rounds of the shorter run. The longer one has three times as many, and the difference is divided by twice these.
ROUNDS = {"identify": 2000, "door": 2000, "jws": 100, "fold": 40}


def say(text):
    print(f"instructions: {text}", file=sys.stderr, flush=True)


def build():
    say("building, optimized (some minutes the first time)")
    environment = {**os.environ, "RATCHET_INSTRUCTIONS": "1"}
    command = ["swift", "build", "-c", "release", "--scratch-path", SCRATCH, "--product", "InstructionPaths"]
    # Valgrind can't read the compiler's form of debug information, and gives up.
    command += ["-Xlinker", "--strip-debug"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"instructions: the build failed\n{done.stdout}{done.stderr}")
    return os.path.join(SCRATCH, "release", "InstructionPaths")


def count(program, path, rounds):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, path, str(rounds)]
    # Swift seeds its hashing at random, and a hash table's shape costs instructions.
    environment = {**os.environ, "SWIFT_DETERMINISTIC_HASHING": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"instructions: {path} did not run\n{done.stdout}{done.stderr[-2000:]}")
    return int(found.group(1))


def main():
    arguments = sys.argv[1:]
    if arguments not in ([], ["--record"], ["--json"]):
        print(__doc__)
        sys.exit(0 if arguments in (["--help"], ["-h"]) else 2)
    program = build()
    with open(RECORDED, encoding="utf-8") as file:
        recorded = json.load(file)
    measured = {}
    for path, rounds in ROUNDS.items():
        say(f"counting {path}")
        measured[path] = round((count(program, path, 3 * rounds) - count(program, path, rounds)) / (2 * rounds))
    if arguments == ["--record"]:
        with open(RECORDED, "w", encoding="utf-8") as file:
            json.dump(measured, file, indent=2)
            file.write("\n")
    if arguments == ["--json"]:
        print(json.dumps({path: {"now": now, "recorded": recorded.get(path)} for path, now in measured.items()}))
    else:
        print(f"{'path':<10} {'now':>12} {'recorded':>12} {'change':>8}")
        for path, now in measured.items():
            then = recorded.get(path)
            change = f"{100 * (now / then - 1):+.1f} %" if then else "new"
            print(f"{path:<10} {now:>12,} {then or 0:>12,} {change:>8}")
    shrunk = [path for path, now in measured.items() if recorded.get(path) and now < recorded[path] * (1 - MOST_GROWTH)]
    if shrunk and arguments != ["--record"]:
        say(f"far below what is recorded, which guards less than it could: --record it anew: {', '.join(shrunk)}")
    grown = [path for path, now in measured.items() if recorded.get(path) and now > recorded[path] * (1 + MOST_GROWTH)]
    if grown and arguments != ["--record"]:
        sys.exit(f"instructions: more than {MOST_GROWTH:.0%} above what is recorded: {', '.join(grown)}")


main()
