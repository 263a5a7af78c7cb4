#!/usr/bin/env python3
"""`make fuzz`: feeds the readers of outside bytes with what libFuzzer makes up, guided by the code that it reaches.

Read from the environment:
  RATCHET_FUZZ_SECONDS  for each target (60)
  RATCHET_FUZZ_ONLY     targets, with commas between (all)
  RATCHET_FUZZ_JOBS     targets at a time (the number of processors)
  RATCHET_FUZZ_INPUT    a file or folder: runs it through the target of RATCHET_FUZZ_ONLY, and fuzzes nothing
  RATCHET_SHARED        vectors that serve as further seeds, when the folder is there (../shared)

With --merge (`make fuzz-merge`) the work copy of the corpus is reduced to few inputs that reach all it reaches, and
that becomes Tests/Fuzz/Corpus. Runs with the vectors gather elsewhere: RATCHET_SHARED=none gathers what can be merged.

Exit codes: 0 nothing was found, 1 an input broke a target (it is kept), 2 wrong arguments or no build.
"""

import argparse
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "Tests/Fuzz/Corpus"
DICTIONARIES = ROOT / "Tests/Fuzz/Dictionaries"
SCRATCH = ROOT / ".build/fuzz"
WORK = SCRATCH / "corpus"
# The vectors are nobody's to copy: what has grown out of them is kept apart, and never merged.
WORK_WITH_VECTORS = SCRATCH / "corpus-with-vectors"
CRASHES = SCRATCH / "crashes"
LOGS = SCRATCH / "logs"
PROGRAM = SCRATCH / "release/FuzzMain"

# A single input takes microseconds; these end what loops or collects.
SECONDS_PER_INPUT = 5
MEGABYTES = 2048
# Between two lines of progress.
PROGRESS_SECONDS = 15


STATUS = re.compile(r"#(\d+)\s+[A-Za-z]+\s+cov: (\d+) ft: (\d+) corp: (\d+)/(\S+)")
STATISTIC = re.compile(r"stat::(\w+):\s+(\d+)")


class Fault(Exception):
    """What ends this program with exit code 2."""


def setting(name, default):
    text = os.environ.get(name) or str(default)
    if not text.isdigit() or int(text) < 1:
        raise Fault(f"{name} must be a whole number above 0")
    return int(text)


def build():
    command = ["swift", "build", "-c", "release", "--product", "FuzzMain", "--scratch-path", str(SCRATCH)]
    # The compiler takes the last of several options; alone, the second sanitizer would switch off the first.
    command += ["--sanitize", "fuzzer", "--sanitize", "address", "-Xswiftc", "-sanitize=fuzzer,address"]
    environment = dict(os.environ, RATCHET_FUZZ="1")
    if subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL).returncode != 0:
        raise Fault("the build failed")


def targets():
    every = sorted(folder.name for folder in KEPT.iterdir() if folder.is_dir())
    only = [name for name in os.environ.get("RATCHET_FUZZ_ONLY", "").split(",") if name]
    for name in only:
        if name not in every:
            raise Fault(f"there is no target {name}: {', '.join(every)}")
    return only or every


def environment(target):
    # Swift keeps some objects to the end on purpose. Its own report of a crash would come before the fuzzer's.
    return dict(
        os.environ, RATCHET_FUZZ_TARGET=target, ASAN_OPTIONS="detect_leaks=0", SWIFT_BACKTRACE="enable=no")


def command(target, *arguments):
    options = [f"-timeout={SECONDS_PER_INPUT}", f"-rss_limit_mb={MEGABYTES}"]
    return [str(PROGRAM), *options, f"-artifact_prefix={CRASHES / target}/", *arguments]


def vectors(folder):
    """Writes what the shared vectors hold for a target into `folder`, a folder for each."""
    shared = Path(os.environ.get("RATCHET_SHARED") or ROOT / "../shared") / "vectors"
    sources = [
        ("jws", "storekit_jws.json", "jws", lambda text: text.encode()),
        ("attestation", "appattest_attestations.json", "attestation", base64.b64decode),
        ("attestation", "appattest_attestations.json", "authData", base64.b64decode),
        ("cbor", "appattest_attestations.json", "attestation", base64.b64decode),
    ]
    for target, name, member, decode in sources:
        if not (shared / name).is_file():
            continue
        into = folder / target
        into.mkdir(exist_ok=True)
        for number, case in enumerate(json.loads((shared / name).read_text())):
            if case.get(member):
                (into / f"{member}-{number}").write_bytes(decode(case[member]))


class Run:
    """One target being fuzzed."""

    def __init__(self, target, seconds, more):
        self.target = target
        self.log = LOGS / f"{target}.log"
        work = WORK_WITH_VECTORS if (more / target).is_dir() else WORK
        for folder in (WORK / target, work / target, CRASHES / target, LOGS):
            folder.mkdir(parents=True, exist_ok=True)
        self.before = set((CRASHES / target).iterdir())
        arguments = [f"-max_total_time={seconds}", "-print_final_stats=1"]
        dictionary = DICTIONARIES / f"{target}.dict"
        if dictionary.is_file():
            arguments.append(f"-dict={dictionary}")
        # New inputs go to the first.
        arguments += [str(work / target), str(KEPT / target)]
        if work != WORK:
            arguments += [str(WORK / target), str(more / target)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command(target, *arguments), env=environment(target), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def text(self):
        return self.log.read_text(errors="replace")

    def reached(self):
        """What the last line of status says."""
        found = STATUS.findall(self.text())
        return "no status yet" if not found else "{0} runs, cov {1}, ft {2}, corpus {3} inputs {4}".format(*found[-1])

    def result(self):
        statistics = dict(STATISTIC.findall(self.text()))
        return (
            f"{self.target:<12} {statistics.get('number_of_executed_units', '?'):>12} runs"
            f" {statistics.get('average_exec_per_sec', '?'):>8}/s   {self.reached().partition(', ')[2]},"
            f" {statistics.get('peak_rss_mb', '?')} MB")

    def crashes(self):
        return sorted(set((CRASHES / self.target).iterdir()) - self.before)


def report(run):
    """Tells of a run that has ended. True when it found nothing."""
    print(run.result(), flush=True)
    if run.process.returncode == 0:
        return True
    lines = [line for line in run.text().splitlines() if re.search(r"broken property|ERROR: |SUMMARY: |Fatal error", line)]
    for line in lines:
        print(f"  {line.strip()}")
    for crash in run.crashes():
        print(f"  kept: {crash.relative_to(ROOT)} ({crash.stat().st_size} bytes)")
        print(f"  again: make fuzz RATCHET_FUZZ_ONLY={run.target} RATCHET_FUZZ_INPUT={crash.relative_to(ROOT)}")
    print(f"  log: {run.log.relative_to(ROOT)}", flush=True)
    return False


def fuzz(names, seconds, jobs):
    print(f"fuzz: {', '.join(names)}: {seconds} s each, {jobs} at a time", flush=True)
    waiting, running, failed = list(names), [], []
    with tempfile.TemporaryDirectory(prefix="ratchet-fuzz-") as more:
        vectors(Path(more))
        told = time.monotonic()
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    running.append(Run(waiting.pop(0), seconds, Path(more)))
                time.sleep(0.2)
                for run in [run for run in running if run.process.poll() is not None]:
                    running.remove(run)
                    if not report(run):
                        failed.append(run.target)
                if time.monotonic() - told >= PROGRESS_SECONDS:
                    told = time.monotonic()
                    for run in running:
                        print(f"  {run.target}: {run.reached()}", flush=True)
        finally:
            for run in running:
                run.process.kill()
                run.process.wait()
    if failed:
        print(f"fuzz: FAILED: {', '.join(failed)}")
        return 1
    print("fuzz: nothing found")
    return 0


def replay(names, path):
    (CRASHES / names[0]).mkdir(parents=True, exist_ok=True)
    arguments = ["-runs=0", path] if Path(path).is_dir() else [path]
    code = subprocess.run(command(names[0], *arguments), env=environment(names[0]), stdin=subprocess.DEVNULL).returncode
    print("fuzz: nothing found" if code == 0 else f"fuzz: FAILED: {names[0]}")
    return 0 if code == 0 else 1


def merge(names):
    code = 0
    for name in names:
        with tempfile.TemporaryDirectory(prefix="ratchet-fuzz-") as folder:
            # By edges alone: telling apart how often each is taken would keep five times as much.
            # What once broke a target stays, whatever it reaches by now.
            for file in (KEPT / name).glob("found-*"):
                shutil.copy(file, folder)
            sources = [str(path) for path in (KEPT / name, WORK / name) if path.is_dir()]
            done = subprocess.run(
                command(name, "-use_counters=0", "-set_cover_merge=1", folder, *sources), env=environment(name), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
            if done.returncode != 0:
                print(f"fuzz: {name} is not merged:\n{done.stderr[-2000:]}", file=sys.stderr)
                code = 1
                continue
            for file in (KEPT / name).iterdir():
                file.unlink()
            for file in Path(folder).iterdir():
                shutil.copy(file, KEPT / name)
        sizes = [file.stat().st_size for file in (KEPT / name).iterdir()]
        print(f"{name:<12} {len(sizes):>5} inputs {sum(sizes):>8} bytes", flush=True)
    return code


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--merge", action="store_true", help="reduce the work copy into Tests/Fuzz/Corpus")
    arguments = parser.parse_args()
    try:
        names = targets()
        seconds = setting("RATCHET_FUZZ_SECONDS", 60)
        jobs = setting("RATCHET_FUZZ_JOBS", os.cpu_count() or 1)
        path = os.environ.get("RATCHET_FUZZ_INPUT")
        if path and len(names) != 1:
            raise Fault("RATCHET_FUZZ_INPUT needs RATCHET_FUZZ_ONLY=<target>")
        if path and not Path(path).exists():
            raise Fault(f"there is no {path}")
        build()
        if arguments.merge:
            return merge(names)
        return replay(names, path) if path else fuzz(names, seconds, jobs)
    except Fault as fault:
        print(f"fuzz: {fault}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
