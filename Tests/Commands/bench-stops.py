#!/usr/bin/env python3
"""Tests that a benchmark leaves nothing running and no data behind, however it ends.

A benchmark with a Redis, a Postgres, a process that ignores its stop signal and one that has a child is started, and
then interrupted, terminated, killed, and let run into a fault.
"""

import concurrent.futures
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
# How long something may take to be gone. A killed benchmark's children are told by the kernel, and stop by themselves.
GONE_SECONDS = 15

STAND_IN = """
import os, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import harness
harness.STOP_SECONDS = 2
try:
    with harness.Bench(folder=sys.argv[2]) as bench:
        bench.redis()
        bench.postgres()
        bench.start("stubborn", ["sh", "-c", "trap '' INT TERM; while :; do sleep 1; done"])
        bench.start("parent", ["sh", "-c", "sleep 1000 & wait"], core=0)
        print(bench.run_folder, flush=True)
        if sys.argv[3] == "fault":
            raise harness.Fault("as asked")
        bench.run("command", ["sleep", "1000"])
except harness.Stopped as stopped:
    print(f"stopped by {stopped}")
    sys.exit(130)
except harness.Fault as fault:
    print(fault)
    sys.exit(1)
"""


def processes_of(pid):
    """Pids of a process' descendants."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, added = set(), {pid}
    while added:
        added = {child for child, parent in parents.items() if parent in added}
        found |= added
    return found


def alive(pids):
    """Those that still run; one that waits to be reaped does not."""
    running = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[0] != "Z":
                    running.add(pid)
        except OSError:
            continue
    return running


def ends(way, number, code):
    """What is wrong after a benchmark ended that way; nothing when all is well."""
    with tempfile.TemporaryDirectory(prefix="ratchet-stops.") as folder:
        os.chmod(folder, 0o711)
        bench = subprocess.Popen(
            [sys.executable, "-c", STAND_IN, os.path.join(HERE, "..", "Bench"), os.path.join(folder, "bench"), way],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        run_folder = bench.stdout.readline().strip()
        children = processes_of(bench.pid)
        deadline = time.monotonic() + GONE_SECONDS
        if number:
            # Its command runs: Postgres with its helpers, Redis, both stand-ins, and that.
            while time.monotonic() < deadline and len(children) < 12:
                time.sleep(0.05)
                children |= processes_of(bench.pid)
            bench.send_signal(number)
        bench.wait(GONE_SECONDS * 2)
        said = bench.communicate()
        deadline = time.monotonic() + GONE_SECONDS
        while (alive(children) or os.path.exists(run_folder)) and time.monotonic() < deadline:
            time.sleep(0.05)
        faults = []
        if bench.returncode != code:
            faults.append(f"exit code {bench.returncode}, not {code}: {said}")
        if len(children) < 4 and number:
            faults.append(f"only {len(children)} processes were seen")
        if alive(children):
            faults.append(f"left running: {alive(children)}")
            for pid in alive(children):
                os.kill(pid, signal.SIGKILL)
        if os.path.exists(run_folder):
            faults.append(f"left behind: {run_folder}")
        return faults


def main():
    ways = {
        "an interrupted benchmark": ("signal", signal.SIGINT, 130),
        "a terminated benchmark": ("signal", signal.SIGTERM, 130),
        "a killed benchmark": ("signal", signal.SIGKILL, -signal.SIGKILL),
        "a benchmark that fails": ("fault", None, 1)}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = dict(zip(ways, pool.map(lambda way: ends(*way), ways.values())))
    for claim, faults in found.items():
        print(f"{'FAILED ' if faults else 'ok     '} {claim} leaves nothing running", *faults, sep="\n    ")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
