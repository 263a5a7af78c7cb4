"""Starts, watches and stops a few processes from one thread. Used by run.py.

All waiting goes through `Supervisor.pause`, which wakes at once for a signal or the end of a child. Handlers only
note what came, so nothing is interrupted half way. Each child gets a session of its own (Ctrl-C on the terminal
reaches only the supervisor, which stops things in order) and a parent-death signal (a supervisor killed with SIGKILL
takes its children along).
"""

import os
import select
import signal
import subprocess
import sys
import time

# A process ends itself RATCHET_STOP_GRACE_MS after SIGTERM at the latest; a little later it is killed.
GRACE_SECONDS = int(os.environ.get("RATCHET_STOP_GRACE_MS") or 20_000) / 1000 + 5
# The pause before a process that died is started again doubles up to the maximum; after so long a life it starts anew.
FIRST_RESTART_SECONDS = 0.25
LONGEST_RESTART_SECONDS = 10
STEADY_SECONDS = 30
# Signals that come so soon after the first are the same wish to stop: a terminal's Ctrl-C, and make passing it on.
ONE_WISH_SECONDS = 1
# Set for every child, so that a later start can find what a killed supervisor left behind.
MARK = "RATCHET_SUPERVISED"


class Fault(Exception):
    """Something the user has to know or mend; its text is one line."""


class Stopped(Exception):
    """A stop was asked for."""


def tail(path, lines=5):
    """The last lines of a log, for a message."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - 8192))
            return "\n".join("    " + line for line in file.read().decode("utf-8", "replace").splitlines()[-lines:])
    except OSError:
        return ""


def remove(path):
    """Removes a file that its writer may remove as well."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


class Managed:
    """One supervised process: what it runs, its pid file and its log. `user` (uid, gid) is for a root supervisor;
    `least_seconds` is what it gets to stop even when everything shall stop at once."""

    def __init__(self, name, argv, env, run_folder, log_folder, stop_signal=signal.SIGTERM, user=None,
                 least_seconds=0):
        self.name, self.argv, self.env, self.user = name, argv, env, user
        self.stop_signal, self.least_seconds = stop_signal, least_seconds
        self.pid_file = os.path.join(run_folder, name + ".pid")
        self.ops_file = os.path.join(run_folder, name + ".ops")
        self.log_file = os.path.join(log_folder, name + ".log")
        self.child = None
        self.started = self.due = 0.0
        self.quick_deaths = 0

    def start(self):
        self.forget_files()
        wrapper = ["setpriv", "--pdeathsig", signal.Signals(self.stop_signal).name[3:]]
        if self.user:
            wrapper += [f"--reuid={self.user[0]}", f"--regid={self.user[1]}", "--init-groups"]
        with open(self.log_file, "ab") as log:
            self.child = subprocess.Popen(
                wrapper + ["--"] + self.argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)
        with open(self.pid_file + ".new", "w") as file:
            file.write(f"{self.child.pid}\n")
        os.replace(self.pid_file + ".new", self.pid_file)
        self.started = time.monotonic()

    def forget_files(self):
        for path in (self.pid_file, self.ops_file):
            remove(path)

    def noticed_death(self):
        """How it ended, once, when it did; then its restart is due at `due`."""
        if self.child is None or self.child.poll() is None:
            return None
        code = self.child.returncode
        self.child = None
        self.forget_files()
        now = time.monotonic()
        self.quick_deaths = 0 if now - self.started > STEADY_SECONDS else self.quick_deaths + 1
        wait = FIRST_RESTART_SECONDS * 2 ** max(0, self.quick_deaths - 1)
        self.due = now + min(wait, LONGEST_RESTART_SECONDS)
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class Supervisor:
    """Owns the signal handlers and the processes, in the order in which they were started."""

    def __init__(self):
        self.processes = []
        self.stops = 0
        self.first_stop = 0.0
        self.stopping = False
        self.reader, self.writer = os.pipe()
        for end in (self.reader, self.writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup asked for hang-ups to be ignored.
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            signal.signal(number, self._note_stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.parent = os.getppid()
        self.make_caught_interrupt = self._make_catches_interrupt()

    def say(self, text):
        self.write(f"ratchet: {text}")

    def write(self, text):
        try:
            print(text, flush=True)
        except OSError:
            # Whoever read the output is gone; that is no reason to leave processes behind.
            sys.stdout = open(os.devnull, "w")

    def _note_stop(self, *_):
        now = time.monotonic()
        if not self.stops:
            self.stops, self.first_stop = 1, now
        elif now - self.first_stop > ONE_WISH_SECONDS:
            self.stops += 1

    def _make_catches_interrupt(self):
        """Whether the parent is a `make` that has its SIGINT handler in place."""
        try:
            with open(f"/proc/{self.parent}/status") as file:
                fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
            return fields.get("Name") == "make" and bool(int(fields["SigCgt"], 16) & 1 << signal.SIGINT - 1)
        except (OSError, ValueError, KeyError):
            return False

    def pause(self, seconds):
        """Waits, less when something happened. Raises Stopped when a stop was asked for and none is under way."""
        if not (self.stops and not self.stopping):
            select.select([self.reader], [], [], max(0, seconds))
            try:
                while os.read(self.reader, 512):
                    pass
            except BlockingIOError:
                pass
        # GNU make does not pass on a SIGINT that it alone received: it drops its handler and waits for its recipe.
        if self.make_caught_interrupt and not self._make_catches_interrupt():
            self.make_caught_interrupt = False
            self._note_stop()
        if self.stops and not self.stopping:
            raise Stopped

    def wait_until(self, condition, seconds, doing, log_file=None):
        """Polls `condition` until it is true, telling every 5 s what is being waited for; a Fault when it never is."""
        began = told = time.monotonic()
        while not condition():
            now = time.monotonic()
            if now - began > seconds:
                more = f"; the end of {log_file}:\n{tail(log_file)}" if log_file else ""
                raise Fault(f"{doing}: not done after {seconds:.0f} s{more}")
            if now - told > 5:
                told = now
                self.say(f"{doing} ... {now - began:.0f} s")
            self.tend()
            self.pause(0.1)

    def command(self, argv, doing, env=None, user=None, log_file=None, check=True):
        """Runs one short command to its end and answers its exit code and output. Without `log_file` and `check` its
        output is only returned; with a log it goes there."""
        wrapper = ["setpriv", "--pdeathsig", "TERM"]
        if user:
            wrapper += [f"--reuid={user[0]}", f"--regid={user[1]}", "--init-groups"]
        log = open(log_file, "ab") if log_file else None
        began = told = time.monotonic()
        try:
            child = subprocess.Popen(
                wrapper + ["--"] + argv, env=env, stdin=subprocess.DEVNULL, stdout=log or subprocess.PIPE,
                stderr=log or subprocess.PIPE, start_new_session=True)
        finally:
            if log:
                log.close()
        output = b""
        try:
            while True:
                if log:
                    if child.poll() is not None:
                        break
                    self.pause(0.2)
                else:
                    try:
                        output, errors = child.communicate(timeout=0.2)
                        break
                    except subprocess.TimeoutExpired:
                        self.pause(0)
                if time.monotonic() - told > 5:
                    told = time.monotonic()
                    self.say(f"{doing} ... {told - began:.0f} s")
        except Stopped:
            self.end(child)
            raise
        if check and child.returncode != 0:
            said = tail(log_file) if log_file else errors.decode("utf-8", "replace").strip()
            raise Fault(f"{doing} failed (exit code {child.returncode}):\n{said}")
        return child.returncode, output

    @staticmethod
    def end(child):
        """Ends a command that is not worth waiting for."""
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def add(self, process):
        self.processes.append(process)
        process.start()

    def tend(self):
        """Starts again what died, after its pause. Answers the seconds until the next restart is due (at most 1)."""
        now = time.monotonic()
        next_due = 1.0
        for process in self.processes:
            ended = process.noticed_death()
            if ended:
                self.say(f"{process.name} ended ({ended}); it starts again in {process.due - now:.2g} s, "
                         f"see {process.log_file}")
            if process.child is None:
                if now >= process.due:
                    process.start()
                    self.say(f"{process.name} started again, pid {process.child.pid}")
                else:
                    next_due = min(next_due, process.due - now)
        return next_due

    def watch(self):
        """Tends the processes until a stop is asked for."""
        while True:
            self.pause(self.tend())

    def stop_all(self, order):
        """Stops the processes in the order of names given, each within the grace. A second signal means now."""
        self.stopping = True
        asked = self.stops
        for process in sorted(self.processes, key=lambda one: order.index(one.name)):
            child = process.child
            if child is not None and child.poll() is None:
                began = told = time.monotonic()
                self.say(f"stopping {process.name}")
                child.send_signal(process.stop_signal)
                while child.poll() is None:
                    now = time.monotonic()
                    hurried = self.stops > max(1, asked)
                    if now - began > (process.least_seconds if hurried else GRACE_SECONDS):
                        self.say(f"{process.name} is killed: " + ("no more time" if hurried else "its grace is over"))
                        os.killpg(child.pid, signal.SIGKILL)
                        child.wait()
                        break
                    if now - told > 2:
                        told = now
                        self.say(f"waiting for {process.name} to finish ... {now - began:.0f} s")
                    self.pause(0.2)
            process.child = None
            process.forget_files()
        self.processes = []


def leftovers(run_folder, homes):
    """Processes of an earlier supervisor of the same data: name of the executable by pid. They carry the mark in their
    environment or (Redis and Postgres write over theirs) have a folder of `homes` {folder: executable} as their own."""
    mark = f"{MARK}={run_folder}".encode()
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                marked = mark in file.read().split(b"\0")
            program = os.path.basename(os.readlink(f"/proc/{entry}/exe"))
            if marked or homes.get(os.readlink(f"/proc/{entry}/cwd"), "/") in program:
                found[int(entry)] = program
        except OSError:
            # It ended meanwhile, or belongs to another user and so not to this data.
            continue
    return found
