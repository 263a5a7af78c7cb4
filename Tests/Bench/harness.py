"""What every section of the benchmark stands on: processes that are always stopped, peers, builds, rounds, results.

A section is a module below sections/ with `measure(bench) -> Section`. All it starts goes through `Bench`, so that an
exception, Ctrl-C, SIGTERM or even a kill of this process leaves nothing running.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pwd
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

import servers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
HERE = os.path.join(ROOT, "Tests", "Bench")
FOLDER = os.path.join(ROOT, ".ratchet", "bench")
SCRATCH = os.path.join(ROOT, ".build", "bench")
MISSING = "missing"
# Time that a process gets to end after its stop signal before it is killed.
STOP_SECONDS = 10
# sun_path holds 107 bytes; this leaves room for the names of sockets below the folder.
LONGEST_FOLDER_BYTES = 70
# A command that runs longer is told of, so that nobody thinks it stands still.
TELL_SECONDS = 10
# Of processes that are pinned to a core.
NICE = -15
TICKS = os.sysconf("SC_CLK_TCK")


class Stopped(BaseException):
    """A signal asked for the end. Not an Exception: no section may take it for a failure of its own."""


class Fault(Exception):
    """What a section can't go on with; its text is one line for the user."""


@dataclasses.dataclass
class Section:
    """What a section answers. `min` and `max` are those of `ours`; `ratio` is larger when better for us."""

    ours: float
    unit: str
    beside: dict
    ratio: float | None
    rounds: int
    min: float
    max: float
    pinned: str
    ratio_min: float | None = None
    ratio_max: float | None = None
    notes: list = dataclasses.field(default_factory=list)
    # Further figures by name: a number, or a dictionary of them.
    variants: dict = dataclasses.field(default_factory=dict)

    def document(self):
        names = {"ratio_min": "ratioMin", "ratio_max": "ratioMax"}
        return {names.get(name, name): rounded(value) for name, value in dataclasses.asdict(self).items()}


def rounded(value):
    """Four digits that mean something; a benchmark has no more."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def summary(values):
    """Median, minimum and maximum of the rounds of one thing, as a variant of a section."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratios(above, below):
    """Round by round: what was measured in the same round saw the same machine."""
    return [one / other for one, other in zip(above, below)]


def section(values, ours, unit, pinned, ratio_to=None, inverted=False, **more):
    """The section of `interleaved` values {name: [..]}: everything but `ours` is beside it. The ratio is ours ÷ what
    `ratio_to` has; `inverted` for costs, where less is better. A name in `missing` goes beside as missing."""
    missing = more.pop("missing", ())
    beside = {name: statistics.median(one) for name, one in values.items() if name != ours}
    beside.update({name: MISSING for name in missing})
    found = None
    if ratio_to in values:
        pair = (values[ratio_to], values[ours]) if inverted else (values[ours], values[ratio_to])
        found = ratios(*pair)
    return Section(
        ours=statistics.median(values[ours]), unit=unit, beside=beside, pinned=pinned, rounds=len(values[ours]),
        min=min(values[ours]), max=max(values[ours]), ratio=statistics.median(found) if found else None,
        ratio_min=min(found) if found else None, ratio_max=max(found) if found else None, **more)


class Process:
    """One started process with all its descendants."""

    def __init__(self, bench, name, child, log, stop_signal):
        self.bench, self.name, self.child, self.log, self.stop_signal = bench, name, child, log, stop_signal
        self.pid = child.pid

    def _tree(self):
        """Fields of /proc/<pid>/stat after the name, of this process and its descendants, by pid."""
        stats = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
                    stats[int(entry)] = file.read().rpartition(b")")[2].split()
        found, added = {}, {self.pid} & stats.keys()
        while added:
            found.update({pid: stats[pid] for pid in added})
            added = {pid for pid, fields in stats.items() if int(fields[1]) in added}
        return found

    def cpu_seconds(self):
        """User and system time of the process tree, ended children included; steps of 10 ms."""
        return sum(sum(map(int, fields[11:15])) for fields in self._tree().values()) / TICKS

    def rss_bytes(self):
        """Resident memory of the process tree; pages that processes share count in each."""
        return sum(int(fields[21]) for fields in self._tree().values()) * os.sysconf("SC_PAGE_SIZE")

    def pss_bytes(self):
        """Memory of the process tree; a page that processes share counts in parts, once in all."""
        total = 0
        for pid in self._tree():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                total += next((int(line.split()[1]) for line in file if line.startswith("Pss:")), 0) << 10
        return total

    def running(self):
        return self.child.poll() is None

    def wait(self, seconds=None):
        """Waits for its own end and answers the exit code."""
        code = self.child.wait(seconds)
        self.bench.forget(self)
        return code

    def stop(self, number=None):
        """Asks it to end, and kills it when it doesn't. Descendants that outlive it are killed."""
        descendants = [pid for pid in self._tree() if pid != self.pid]
        if self.child.poll() is None:
            self.child.send_signal(number or self.stop_signal)
            try:
                self.child.wait(0 if self.bench.hurried else STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        for kill, target in [(os.killpg, self.pid)] + [(os.kill, pid) for pid in descendants]:
            # Those that are gone have been reparented or reused by nobody: pids are not given out again so soon.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(target, signal.SIGKILL)
        self.bench.forget(self)

    def tail(self, lines=8):
        with contextlib.suppress(OSError), open(self.log, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:])
        return ""


class Bench:
    """The benchmark's one run. Use it as a context: leaving it stops everything."""

    def __init__(self, quick=False, rounds=None, folder=FOLDER):
        self.folder = folder
        self.quick = quick
        self.rounds = rounds or (1 if quick else 3)
        self.hurried = False
        self.notes = []
        self.processes = []
        self._critical = 0
        self._asked = None
        self._built = False
        # What is measured goes before whatever else the machine does: a server that waits for a core finds its requests
        # in heaps, and heaps are cheap. Only root may.
        self._ahead = ["nice", "-n", str(NICE)] if os.geteuid() == 0 else []
        self._number = 0
        self._began = time.monotonic()

    # -- life ------------------------------------------------------------------------------------------------------

    def __enter__(self):
        for folder in (os.path.dirname(self.folder), self.folder):
            # The user postgres walks through them.
            os.makedirs(folder, mode=0o711, exist_ok=True)
        self._lock = open(os.path.join(self.folder, "lock"), "a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Fault(f"another benchmark runs in {self.folder}") from None
        self.run_folder = self._clean_run_folder()
        self.log_folder = os.path.join(self.folder, "log")
        shutil.rmtree(self.log_folder, ignore_errors=True)
        os.makedirs(self.log_folder)
        # Ignored before: nohup's hang-ups. A shell's background job ignores SIGINT too, but we may be asked by it.
        self._handlers = {
            number: signal.signal(number, self._signalled) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN}
        self._guard = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "guard.py"), self.run_folder], stdin=subprocess.PIPE, text=True,
            start_new_session=True)
        threading.Thread(target=self._watch_make, daemon=True).start()
        return self

    def __exit__(self, *_):
        with self._uninterrupted():
            self._asked = self._asked or "the end"
            for process in reversed(self.processes[:]):
                process.stop()
            self._guard.stdin.close()
            self._guard.wait()
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self._asked = None

    def _clean_run_folder(self):
        """Data and sockets of this run: below .ratchet/bench, or elsewhere when the user postgres can't get there or
        its path is too long for a socket."""
        folder = os.path.join(self.folder, "run")
        reached = os.geteuid() != 0 or subprocess.run(
            ["setpriv", "--reuid=postgres", "--clear-groups", "test", "-x", self.folder], check=False).returncode == 0
        if not reached or len(os.fsencode(folder)) > LONGEST_FOLDER_BYTES:
            folder = f"/var/tmp/ratchet-bench-{hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:12]}"
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        os.chmod(folder, 0o711)
        return folder

    def _signalled(self, number, _):
        if self._asked:
            self.hurried = True
            return
        self._asked = signal.Signals(number).name
        if not self._critical:
            raise Stopped(self._asked)

    @contextlib.contextmanager
    def _uninterrupted(self):
        """A signal in here shows after it: a process is started and known, or neither."""
        self._critical += 1
        try:
            yield
        finally:
            self._critical -= 1
        if self._asked and not self._critical and self._asked != "the end":
            raise Stopped(self._asked)

    def _watch_make(self):
        """GNU make does not pass on a SIGINT that it alone received: it drops its handler and waits for its recipe."""
        def catches():
            with contextlib.suppress(OSError, ValueError, KeyError), open(f"/proc/{os.getppid()}/status") as file:
                fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
                return fields["Name"] == "make" and bool(int(fields["SigCgt"], 16) & 1 << signal.SIGINT - 1)
            return False
        while catches():
            time.sleep(0.5)
            if not catches():
                os.kill(os.getpid(), signal.SIGINT)
                return

    def stop_since(self, started):
        """Stops what was started after there were `started` processes: a section leaves nothing to the next."""
        for process in reversed(self.processes[started:]):
            process.stop()

    def forget(self, process):
        if process in self.processes:
            self.processes.remove(process)
            self._tell_guard(f"-{process.pid}")

    def _tell_guard(self, line):
        # Without its guard a benchmark still measures, and still stops what it started unless it is killed.
        with contextlib.suppress(OSError):
            print(line, file=self._guard.stdin, flush=True)

    # -- what it tells -----------------------------------------------------------------------------------------------

    def progress(self, text):
        print(f"bench: {time.monotonic() - self._began:6.1f} s  {text}", file=sys.stderr, flush=True)

    # -- processes ---------------------------------------------------------------------------------------------------

    def start(self, name, argv, env=None, core=None, user=None, cwd=None, stop_signal=signal.SIGTERM, output=None):
        """Starts a process on a core (None: any) with exactly `env` added to this process' environment. What it says
        goes to a log, its standard output to the open file `output` if there is one."""
        wrapper = ["setpriv", "--pdeathsig", signal.Signals(stop_signal).name[3:]]
        if user and os.geteuid() == 0:
            entry = pwd.getpwnam(user)
            wrapper += [f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--init-groups"]
        # Whoever killed this process before its child asked to be told of that has left an orphan, which ends itself.
        wrapper += ["--", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid())]
        pin = [] if core is None else ["taskset", "-c", str(core), *self._ahead]
        self._number += 1
        path = os.path.join(self.log_folder, f"{self._number:03}-{name}.log")
        with self._uninterrupted(), open(path, "ab") as log:
            child = subprocess.Popen(
                pin + wrapper + [str(part) for part in argv], env={**os.environ, **(env or {})},
                cwd=cwd or self.run_folder, stdin=subprocess.DEVNULL, stdout=output or log, stderr=log,
                start_new_session=True)
            process = Process(self, name, child, path, stop_signal)
            self.processes.append(process)
            self._tell_guard(f"+{child.pid}")
        if core is not None and self._ahead:
            # Where the kernel shares out time by session, nice only counts inside of one.
            with contextlib.suppress(OSError), open(f"/proc/{child.pid}/autogroup", "w", encoding="ascii") as file:
                file.write(str(NICE))
        return process

    def run(self, name, argv, env=None, core=None, user=None, cwd=None, check=True, seconds=600):
        """Runs a command to its end and answers its standard output; a Fault when it fails."""
        path = os.path.join(self.log_folder, f"{self._number + 1:03}-{name}.out")
        with open(path, "w+b") as output:
            process = self.start(name, argv, env=env, core=core, user=user, cwd=cwd, output=output)
            code = self._wait_telling(process, seconds)
            output.seek(0)
            text = output.read().decode("utf-8", "replace")
        if check and code != 0:
            raise Fault(f"{name} failed (exit code {code}): {(process.tail() or text[-2000:]).strip()}")
        return text

    def _wait_telling(self, process, seconds):
        """Waits for the end of a command and tells every now and then that it still runs."""
        began = time.monotonic()
        while True:
            try:
                return process.wait(TELL_SECONDS)
            except subprocess.TimeoutExpired:
                spent = time.monotonic() - began
                if spent > seconds:
                    process.stop()
                    raise Fault(f"{process.name} did not end in {seconds} s") from None
                self.progress(f"{process.name} ... {spent:.0f} s")

    def wait_until(self, condition, seconds, what, process=None):
        """Polls until `condition` is true; a Fault when that takes too long or `process` ends."""
        deadline = time.monotonic() + seconds
        while not condition():
            if process and not process.running():
                raise Fault(f"{what}: {process.name} ended: {process.tail().strip()}")
            if time.monotonic() > deadline:
                raise Fault(f"{what}: not in {seconds} s" + (f": {process.tail().strip()}" if process else ""))
            time.sleep(0.02)

    def free_port(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    def new_folder(self, name):
        """An empty folder that goes with the run."""
        self._number += 1
        folder = os.path.join(self.run_folder, f"{name}{self._number}")
        os.makedirs(folder)
        return folder

    # -- servers -----------------------------------------------------------------------------------------------------

    def redis(self, appendfsync="everysec", core=1, maxmemory="4gb", **settings):
        """A running private Redis with deploy/redis.conf. `appendfsync` None: no append-only file. Further settings of
        redis.conf with _ for -."""
        return servers.Redis(self, appendfsync, core, maxmemory, settings)

    def postgres(self, core=None, **settings):
        """A running private cluster with deploy/postgresql.conf and these settings over it."""
        return servers.Postgres(self, core, settings)

    def system(self, redis, postgres, **settings):
        """A migrated installation of Ratchet on these servers; nothing of it runs yet."""
        return servers.System(self, redis, postgres, settings)

    # -- builds and peers --------------------------------------------------------------------------------------------

    def build(self):
        """Builds all products and BenchMain, optimized, once a run."""
        if self._built:
            return
        self.progress("building, optimized (some minutes the first time)")
        # As `make build` does it.
        self.run("swift-build", ["swift", "build", "-c", "release", "--static-swift-stdlib", "--scratch-path", SCRATCH],
                 cwd=ROOT, env={"RATCHET_BENCH": "1"}, seconds=3600)
        self._built = True

    def binary(self, name):
        self.build()
        return os.path.join(SCRATCH, "release", name)

    def bench_main(self, *arguments, core=0, env=None, seconds=1800):
        """Runs a subcommand of BenchMain and answers the JSON of its last line."""
        output = self.run(f"bench-{arguments[0]}", [self.binary("BenchMain"), *arguments], core=core, env=env,
                          seconds=seconds)
        return json.loads(output.splitlines()[-1])

    def compile_c(self, path, libraries=()):
        """The program of one C file below Tests/Bench, optimized; `libraries` by their pkg-config names or -l names."""
        name = os.path.splitext(os.path.basename(path))[0]
        target = os.path.join(self.folder, "bin", name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        flags = []
        for library in libraries:
            found = subprocess.run(["pkg-config", "--cflags", "--libs", library], capture_output=True, text=True)
            flags += found.stdout.split() if found.returncode == 0 else [f"-l{library}"]
        compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), "cc")
        self.run(f"compile-{name}", [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu17", "-o", target,
                                     os.path.join(HERE, path), *flags])
        return target

    def debian(self, *packages):
        """Installs Debian packages that are missing. False when one can't be had: its peer is missing then."""
        installed = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Status} ${Package}\n", *packages],
                                   capture_output=True, text=True).stdout.splitlines()
        if all(f"installed {package}" in installed for package in packages):
            return True
        self.progress(f"installing {' '.join(packages)}")
        try:
            self.run("apt", [os.path.join(ROOT, "deploy", "dev", "setup.sh"), *packages])
            return True
        except Fault as fault:
            self.progress(f"missing: {fault}")
            return False

    def versions(self, *packages):
        """The installed versions of Debian packages, for a note: a peer is only that peer in a version."""
        shown = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Status} ${Package} ${Version}\n", *packages],
                               capture_output=True, text=True).stdout.splitlines()
        return ", ".join(line.partition(" ")[2] for line in shown if line.startswith("installed "))

    def python_peer(self, *requirements, venv="venv"):
        """The interpreter of a virtual environment that has these ("name==version"), or None when PyPI has not."""
        folder = os.path.join(self.folder, venv)
        python = os.path.join(folder, "bin", "python")
        if not os.path.exists(python):
            self.progress("making a virtual environment")
            try:
                self.run("venv", [sys.executable, "-m", "venv", folder])
            except Fault as fault:
                shutil.rmtree(folder, ignore_errors=True)
                if not self.debian("python3-venv"):
                    return None
                self.run("venv", ["/usr/bin/python3", "-m", "venv", folder])
        if not self._have(python, requirements):
            self.progress(f"installing {' '.join(requirements)}")
            try:
                self.run("pip", [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements])
            except Fault as fault:
                self.progress(f"missing: {fault}")
                return None
        return python

    def _have(self, python, requirements):
        """Whether the environment has exactly these versions."""
        code = "import sys, importlib.metadata as m\nfor r in sys.argv[1:]:\n n, _, v = r.partition('==')\n" \
               " assert not v or m.version(n.partition('[')[0]) == v\n m.version(n.partition('[')[0])"
        return subprocess.run([python, "-c", code, *requirements], capture_output=True).returncode == 0

    # -- rounds ------------------------------------------------------------------------------------------------------

    def interleaved(self, rounds, things):
        """Measures each thing {name: callable returning a number} in turn, `rounds` times. Every other round goes
        backwards: what warms up or runs full favours nobody."""
        values = {name: [] for name in things}
        for number in range(rounds):
            order = list(things) if number % 2 == 0 else list(reversed(things))
            for name in order:
                value = things[name]()
                values[name].append(value)
                self.progress(f"round {number + 1} of {rounds}: {name}: {value:,.4g}")
        return values


def machine():
    """What the figures depend on, for the reader of latest.json."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")
    with open("/proc/meminfo", encoding="utf-8") as file:
        kilobytes = int(file.readline().split()[1])
    with open("/etc/os-release", encoding="utf-8") as file:
        system = next((line.split("=", 1)[1].strip().strip('"') for line in file if line.startswith("PRETTY_NAME")), "")
    return {"cpu": model, "cores": os.cpu_count(), "memoryMB": kilobytes >> 10, "system": system,
            "kernel": os.uname().release, "niceOfPinned": NICE if os.geteuid() == 0 else 0,
            "load": round(os.getloadavg()[0], 2)}


def commit():
    """The commit that was measured, with + when files differ from it."""
    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("+" if git("status", "--porcelain") else "")
