#!/usr/bin/env python3
"""`make run`: a whole private Ratchet in one data folder, until Ctrl-C.

Builds, starts Redis and Postgres on unix sockets with the configuration files of deploy/, migrates, creates a demo
organization, starts the four processes and keeps them running. Two copies with different RATCHET_DATA and
RATCHET_INGRESS_PORT do not touch each other. `--remove-data` removes the data folder of a stopped copy.
"""

import fcntl
import glob
import hashlib
import http.client
import json
import os
import pwd
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from supervisor import GRACE_SECONDS, MARK, Fault, Managed, Stopped, Supervisor, leftovers, remove  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
PRODUCTS = ["ratchet", "ratchet-ingress", "ratchet-verifier", "ratchet-writer", "ratchet-sweeper"]
# Names of pid and log files. Nothing new is accepted first; what the others still need goes last.
STOP_ORDER = ["ingress", "verifier", "writer", "sweeper", "postgres", "redis"]
# sun_path of a unix socket holds 107 bytes and a NUL.
LONGEST_SOCKET_PATH_BYTES = 107
POSTGRES_SOCKET = ".s.PGSQL.5432"
READY_SECONDS = 60
# Redis and Postgres keep data: even a stop at once lets them write it down.
SERVER_STOP_SECONDS = 10
# At a start a longer log is put aside, so that two of this length are kept at most.
LONGEST_LOG_BYTES = 16 << 20
DEMO = {"organization": "demo", "bundle": "com.example.app", "team": "ABCDE12345"}


def compact(value):
    return json.dumps(value, separators=(",", ":"))


class Folders:
    """Where everything of one copy lies. The socket folder and the cluster move when they cannot be under the data."""

    def __init__(self, data):
        self.data = os.path.realpath(data)
        digest = hashlib.sha256(os.fsencode(self.data)).hexdigest()[:12]
        self.run = os.path.join(self.data, "run")
        self.log = os.path.join(self.data, "log")
        self.redis = os.path.join(self.data, "redis")
        self.cluster = os.path.join(self.data, "postgres")
        self.elsewhere = f"/var/lib/ratchet-dev/{digest}"
        self.short = f"/tmp/ratchet-{os.getuid()}-{digest}"
        self.sockets = self.data
        # A Redis URL and a libpq string hold such a path without quoting.
        plain = re.fullmatch(r"[A-Za-z0-9/._-]+", self.data)
        longest = os.path.join(self.data, "pgsock", POSTGRES_SOCKET)
        if not plain or len(os.fsencode(longest)) > LONGEST_SOCKET_PATH_BYTES:
            self.sockets = self.short

    @property
    def redis_socket(self):
        return os.path.join(self.sockets, "redis.sock")

    @property
    def postgres_sockets(self):
        return os.path.join(self.sockets, "pgsock")

    def move_from(self, user, supervisor):
        """Puts sockets and cluster where `user` can reach them, if a folder above the data is closed to it."""
        reach = ["sh", "-c", 'cd "$1" && test -x .', "sh", self.data]
        if supervisor.command(reach, "checking the data folder", user=user, check=False)[0] != 0:
            self.sockets, self.cluster = self.short, os.path.join(self.elsewhere, "postgres")
            os.makedirs(self.elsewhere, mode=0o711, exist_ok=True)
            supervisor.say(f"the user postgres cannot reach {self.data}: the cluster is in {self.cluster}")


class Run:
    def __init__(self, supervisor, folders):
        self.supervisor, self.folders = supervisor, folders
        self.say = supervisor.say
        self.locked = False
        self.port = self.port_setting("RATCHET_INGRESS_PORT", 8080)
        self.port_setting("RATCHET_CONSOLE_PORT", 8081)
        # initdb and postgres refuse to run as root.
        self.database_user = None
        if os.geteuid() == 0:
            entry = pwd.getpwnam("postgres")
            self.database_user = (entry.pw_uid, entry.pw_gid)
        # A test's way in: fake programs, or a debug build.
        self.binaries = os.path.abspath(os.environ.get("RATCHET_BIN_DIR") or os.path.join(ROOT, ".build", "release"))

    @staticmethod
    def port_setting(name, default):
        text = os.environ.get(name) or str(default)
        if not text.isdecimal() or not 1 <= int(text) <= 65535:
            raise Fault(f"{name} is '{text}': it must be a port from 1 to 65535")
        return int(text)

    # -- before anything is started -------------------------------------------------------------------------------

    def lock(self):
        """Holds the data folder until this process ends, however it ends."""
        if not os.path.isdir(self.folders.data):
            os.makedirs(self.folders.data)
            # The user postgres walks through it, whatever the umask is.
            os.chmod(self.folders.data, 0o711)
        for folder in (self.folders.run, self.folders.log, self.folders.redis):
            os.makedirs(folder, mode=0o755, exist_ok=True)
        self.lock_file = open(os.path.join(self.folders.data, "lock"), "a+")
        try:
            fcntl.flock(self.lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.lock_file.seek(0)
            raise Fault(f"already running on {self.folders.data} (pid {self.lock_file.read().strip() or 'unknown'}); "
                        "stop it, or set RATCHET_DATA to another folder") from None
        self.locked = True
        self.lock_file.truncate(0)
        self.lock_file.write(str(os.getpid()))
        self.lock_file.flush()

    def find_leftovers(self):
        clusters = {self.folders.cluster, os.path.join(self.folders.elsewhere, "postgres")}
        return leftovers(self.folders.run, {self.folders.redis: "redis", **dict.fromkeys(clusters, "postgres")})

    def clear_leftovers(self):
        """Ends what a killed supervisor of this data left running, and removes its files."""
        for number, seconds in ((None, 3), (signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, 5)):
            # They were told to stop when their supervisor died: at first they only need a moment.
            found = self.find_leftovers()
            if not found:
                break
            names = ", ".join(f"{program} {pid}" for pid, program in sorted(found.items()))
            self.say(f"ending what an earlier run left: {names}" if number else f"an earlier run is ending: {names}")
            for pid, program in found.items() if number else ():
                # SIGINT ends Postgres without waiting for its clients.
                mild = signal.SIGINT if program == "postgres" else number
                try:
                    os.kill(pid, number if number == signal.SIGKILL else mild)
                except ProcessLookupError:
                    pass
            deadline = time.monotonic() + seconds
            while self.find_leftovers() and time.monotonic() < deadline:
                self.supervisor.pause(0.1)
        if self.find_leftovers():
            raise Fault(f"processes of an earlier run do not end: {self.find_leftovers()}")
        # The pids in Postgres's own lock files may belong to strangers by now; nothing of this data runs any more.
        stale = [os.path.join(self.folders.cluster, "postmaster.pid"), self.folders.redis_socket]
        stale += glob.glob(glob.escape(self.folders.postgres_sockets) + "/.s.PGSQL.*")
        stale += glob.glob(glob.escape(self.folders.run) + "/*.pid") + glob.glob(glob.escape(self.folders.run) + "/*.ops")
        for path in stale:
            remove(path)

    def check_port(self):
        """The ingress shares its port by SO_REUSEPORT; a second copy would silently take half of the requests."""
        for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            try:
                with socket.socket(family, socket.SOCK_STREAM) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    if family == socket.AF_INET6:
                        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    probe.bind((address, self.port))
                    probe.listen(1)
            except PermissionError:
                raise Fault(f"port {self.port} is not allowed for this user: set RATCHET_INGRESS_PORT") from None
            except OSError as error:
                if error.errno == 98:
                    raise Fault(f"port {self.port} is in use: set RATCHET_INGRESS_PORT to a free one") from None

    def build(self):
        if os.environ.get("RATCHET_BIN_DIR"):
            self.say(f"using the binaries in {self.binaries}")
        else:
            for product in PRODUCTS:
                # Its progress goes to the terminal. It stays in our process group, so Ctrl-C ends it too.
                self.say(f"building {product}")
                child = subprocess.Popen(
                    ["swift", "build", "-c", "release", "--static-swift-stdlib", "--package-path", ROOT, "--product",
                     product], stdin=subprocess.DEVNULL)
                try:
                    while child.poll() is None:
                        self.supervisor.pause(1)
                except Stopped:
                    self.supervisor.end(child)
                    raise
                if child.returncode != 0:
                    raise Fault(f"building {product} failed; see above")
        for product in PRODUCTS:
            if not os.access(os.path.join(self.binaries, product), os.X_OK):
                raise Fault(f"{os.path.join(self.binaries, product)} is missing")

    # -- what the processes are told ------------------------------------------------------------------------------

    def secret(self):
        path = os.path.join(self.folders.data, "secret")
        if not os.path.exists(path):
            with open(os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(secrets.token_hex(32) + "\n")
            os.replace(path + ".new", path)
        with open(path) as file:
            return file.read().strip()

    def settings(self):
        own = {
            "RATCHET_DATA": self.folders.data,
            "RATCHET_REDIS_URL": f"unix://{self.folders.redis_socket}",
            "RATCHET_PG": f"host={self.folders.postgres_sockets} port=5432 dbname=ratchet user=ratchet",
            "RATCHET_RUN_DIR": self.folders.run,
            "RATCHET_INGRESS_PORT": str(self.port),
            # Four processes cannot share one fixed address; each writes the one it got to run/<name>.ops.
            "RATCHET_OPS_LISTEN": "127.0.0.1:0",
        }
        own["RATCHET_MODE"] = os.environ.get("RATCHET_MODE") or "development"
        own["RATCHET_SECRET"] = os.environ.get("RATCHET_SECRET") or self.secret()
        return own

    def write_wrapper(self, settings):
        """`<data>/ratchet` runs the CLI against this copy."""
        lines = ["#!/bin/sh", "# The CLI against the copy of Ratchet in this folder; written by make run."]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in settings.items()]
        lines.append(f'exec {shlex.quote(os.path.join(self.binaries, "ratchet"))} "$@"')
        path = os.path.join(self.folders.data, "ratchet")
        with open(os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "w") as file:
            file.write("\n".join(lines) + "\n")
        os.replace(path + ".new", path)

    def manage(self, name, argv, env, **more):
        log = os.path.join(self.folders.log, name + ".log")
        if os.path.exists(log) and os.path.getsize(log) > LONGEST_LOG_BYTES:
            os.replace(log, log + ".1")
        self.supervisor.add(Managed(name, argv, env, self.folders.run, self.folders.log, **more))

    # -- the servers ----------------------------------------------------------------------------------------------

    def make_socket_folder(self):
        if self.folders.sockets == self.folders.short:
            os.makedirs(self.folders.short, mode=0o711, exist_ok=True)
            entry = os.lstat(self.folders.short)
            if entry.st_uid != os.geteuid() or os.path.islink(self.folders.short):
                raise Fault(f"{self.folders.short} belongs to somebody else: remove it, or use a shorter RATCHET_DATA")
            self.say(f"sockets are in {self.folders.short}")
        os.makedirs(self.folders.postgres_sockets, mode=0o700, exist_ok=True)
        if self.database_user:
            os.chown(self.folders.postgres_sockets, *self.database_user)

    def start_redis(self):
        path = os.path.join(self.folders.redis, "redis.conf")
        quoted = {key: json.dumps(value, ensure_ascii=False) for key, value in {
            "include": os.path.join(ROOT, "deploy", "redis.conf"), "socket": self.folders.redis_socket,
            "dir": self.folders.redis}.items()}
        with open(path, "w") as file:
            file.write(f"include {quoted['include']}\nport 0\nunixsocket {quoted['socket']}\nunixsocketperm 700\n"
                       f"dir {quoted['dir']}\ndaemonize no\nlogfile \"\"\npidfile \"\"\n")
        self.manage("redis", [shutil.which("redis-server") or "redis-server", path], self.server_environment(),
                    least_seconds=SERVER_STOP_SECONDS)

    def redis_answers(self):
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(1)
                client.connect(self.folders.redis_socket)
                client.sendall(b"PING\r\n")
                return client.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def postgres_programs(self):
        """The folder of initdb and postgres: the version of an existing cluster, else the newest from 15 on."""
        version_file = os.path.join(self.folders.cluster, "PG_VERSION")
        if os.path.exists(version_file):
            with open(version_file) as file:
                version = file.read().strip()
            folders = [f"/usr/lib/postgresql/{version}/bin"]
            lacking = f"the cluster in {self.folders.cluster} needs PostgreSQL {version}: install it, or make clean-data"
        else:
            installed = [int(path.split("/")[4]) for path in glob.glob("/usr/lib/postgresql/[0-9]*/bin/initdb")]
            folders = [f"/usr/lib/postgresql/{one}/bin" for one in sorted(installed, reverse=True) if one >= 15]
            lacking = "PostgreSQL 15 is missing: run make setup"
        if not folders or not os.path.exists(folders[0] + "/postgres"):
            raise Fault(lacking)
        return folders[0]

    def server_environment(self):
        return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C", MARK: self.folders.run}

    def start_postgres(self):
        programs = self.postgres_programs()
        cluster = self.folders.cluster
        if not os.path.exists(os.path.join(cluster, "PG_VERSION")):
            # Made under another name first: an interrupted initdb must not look like a cluster.
            self.say(f"creating a Postgres cluster in {cluster}")
            shutil.rmtree(cluster + ".new", ignore_errors=True)
            os.makedirs(cluster + ".new", mode=0o700)
            if self.database_user:
                os.chown(cluster + ".new", *self.database_user)
            self.supervisor.command(
                [programs + "/initdb", "--pgdata", cluster + ".new", "--username=postgres", "--encoding=UTF8",
                 "--no-locale", "--auth-local=trust", "--auth-host=reject", "--data-checksums"],
                "creating the cluster", env=self.server_environment(), user=self.database_user,
                log_file=os.path.join(self.folders.log, "initdb.log"))
            os.rename(cluster + ".new", cluster)
        # The server may not be able to read this repository: the shared settings are copied into the cluster.
        own = (f"include 'ratchet.conf'\nlisten_addresses = ''\nport = 5432\n"
               f"unix_socket_directories = '{self.folders.postgres_sockets}'\nunix_socket_permissions = 0700\n")
        with open(os.path.join(ROOT, "deploy", "postgresql.conf")) as file:
            shared = file.read()
        for name, text in (("ratchet.conf", shared), ("postgresql.conf", own)):
            path = os.path.join(cluster, name)
            with open(path, "w") as file:
                file.write(text)
            if self.database_user:
                os.chown(path, *self.database_user)
        # SIGINT is its fast stop: clients are cut off, nothing is lost.
        self.manage("postgres", [programs + "/postgres", "-D", cluster], self.server_environment(),
                    stop_signal=signal.SIGINT, user=self.database_user, least_seconds=SERVER_STOP_SECONDS)
        self.psql = [programs + "/psql", "--no-psqlrc", "-h", self.folders.postgres_sockets, "-p", "5432", "-U", "postgres",
                     "-v", "ON_ERROR_STOP=1", "-Atqc"]

    def postgres_answers(self):
        return self.supervisor.command(
            self.psql + ["select 1", "postgres"], "asking Postgres", env=self.server_environment(), check=False)[0] == 0

    def create_database(self):
        """The role owns its database and is no superuser, as on a real machine."""
        for question, order in (
            ("select 1 from pg_roles where rolname = 'ratchet'", "create role ratchet login"),
            ("select 1 from pg_database where datname = 'ratchet'", "create database ratchet owner ratchet"),
        ):
            for statement in (question, order):
                _, output = self.supervisor.command(
                    self.psql + [statement, "postgres"], "creating the database", env=self.server_environment())
                if output.strip():
                    break

    # -- Ratchet itself -------------------------------------------------------------------------------------------

    def admin(self, *arguments, check=True):
        argv = [os.path.join(self.binaries, "ratchet"), *arguments]
        return self.supervisor.command(argv, "ratchet " + " ".join(arguments), env=self.environment, check=check)

    def create_demo(self):
        organization, bundle = DEMO["organization"], DEMO["bundle"]
        if not self.listed(organization, "orgs", "list"):
            self.admin("orgs", "create", organization, "--name", "Demo")
        if not self.listed(bundle, "apps", "list", "--org", organization):
            self.admin("apps", "connect", bundle, "--org", organization, "--team", DEMO["team"])

    def listed(self, name, *command):
        code, output = self.admin(*command, "--json", check=False)
        return code == 0 and json.dumps(name).encode() in output

    def ready(self, name):
        """200 from /readyz on the operations address that the process wrote down."""
        try:
            with open(os.path.join(self.folders.run, name + ".ops")) as file:
                address = file.read().strip()
            connection = http.client.HTTPConnection(address, timeout=1)
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def go(self):
        self.lock()
        if self.database_user:
            self.folders.move_from(self.database_user, self.supervisor)
        self.clear_leftovers()
        self.check_port()
        self.build()
        self.make_socket_folder()
        settings = self.settings()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        self.environment = {**kept, **settings, MARK: self.folders.run}

        self.say("starting Redis and Postgres")
        self.start_redis()
        self.start_postgres()
        self.supervisor.wait_until(self.redis_answers, READY_SECONDS, "waiting for Redis",
                                   os.path.join(self.folders.log, "redis.log"))
        self.supervisor.wait_until(self.postgres_answers, READY_SECONDS, "waiting for Postgres",
                                   os.path.join(self.folders.log, "postgres.log"))
        self.create_database()
        self.say("migrating")
        self.admin("migrate")
        self.create_demo()
        # What Ratchet itself reads; the rest concerns only this command.
        self.write_wrapper({name: value for name, value in {**kept, **settings}.items()
                            if name.startswith("RATCHET_") and name not in ("RATCHET_BIN_DIR", "RATCHET_SHARED")})

        self.check_port()
        self.say("starting ingress, verifier, writer and sweeper")
        for name in ("ingress", "verifier", "writer", "sweeper"):
            self.manage(name, [os.path.join(self.binaries, "ratchet-" + name)], self.environment)
        for name in ("writer", "sweeper", "verifier", "ingress"):
            self.supervisor.wait_until(lambda one=name: self.ready(one), READY_SECONDS, f"waiting for {name}",
                                       os.path.join(self.folders.log, name + ".log"))
        self.announce()
        self.supervisor.watch()

    def announce(self):
        url = f"http://127.0.0.1:{self.port}"
        here = self.folders.data
        if os.path.commonpath([here, os.getcwd()]) == os.getcwd():
            here = os.path.relpath(here)
        ops = shlex.quote(os.path.join(here, "run", "ingress.ops"))
        identify = {"bundleId": DEMO["bundle"], "appUserId": "user_42", "attributes": {"plan": "trial"}}
        attribute = {"bundleId": DEMO["bundle"], "appUserId": "user_42", "originalTransactionId": "2000000000000042",
                     "productId": "com.example.app.pro"}
        cli = shlex.quote(os.path.join(here, "ratchet") if os.path.isabs(here) else f"./{here}/ratchet")
        self.say(f"ready  {url}")
        self.supervisor.write(f"""
  curl -sS {url}/api/sdk/v1/identify -d '{compact(identify)}'
  curl -sS {url}/api/sdk/v1/attribute -d '{compact(attribute)}'
  curl -sS "http://$(cat {ops})/readyz"

  {cli} customers show user_42 --org {DEMO["organization"]}

  Logs are in {os.path.join(here, "log")}; Ctrl-C stops everything, the data stays.
""")

    def stop(self):
        """Leaves no process, socket or pid behind. Only the holder of the lock may call it."""
        ran = bool(self.supervisor.processes)
        self.supervisor.stop_all(STOP_ORDER)
        for path in (self.folders.redis_socket, *glob.glob(glob.escape(self.folders.postgres_sockets) + "/.s.PGSQL.*")):
            remove(path)
        if self.folders.sockets == self.folders.short:
            shutil.rmtree(self.folders.short, ignore_errors=True)
        self.lock_file.truncate(0)
        if ran:
            self.say("stopped")


def remove_data(run):
    folders = run.folders
    if not os.path.exists(os.path.join(folders.data, "lock")):
        raise Fault(f"{folders.data} holds no data of make run")
    run.lock()
    run.clear_leftovers()
    for folder in (folders.data, folders.elsewhere, folders.short):
        if os.path.isdir(folder):
            run.say(f"removing {folder}")
            for name in ("run", "log", "redis", "postgres", "postgres.new", "pgsock"):
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
            for name in ("secret", "ratchet", "redis.sock"):
                remove(os.path.join(folder, name))
            if os.listdir(folder) in ([], ["lock"]):
                shutil.rmtree(folder)
    home = os.path.dirname(folders.elsewhere)
    if os.path.isdir(home) and not os.listdir(home):
        os.rmdir(home)


def main():
    supervisor = Supervisor()
    run = None
    status = 0
    try:
        run = Run(supervisor, Folders(os.environ.get("RATCHET_DATA") or ".ratchet"))
        if sys.argv[1:] == ["--remove-data"]:
            remove_data(run)
        elif sys.argv[1:]:
            raise Fault(f"unknown argument {sys.argv[1]}")
        else:
            run.go()
    except Stopped:
        supervisor.say("stopping; once more to stop at once")
    except Fault as fault:
        supervisor.say(str(fault))
        status = 1
    except OSError as error:
        supervisor.say(f"{error.strerror or error}: {error.filename or ''}")
        status = 1
    finally:
        if run and run.locked:
            run.stop()
    return status


if __name__ == "__main__":
    sys.exit(main())
