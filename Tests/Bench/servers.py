"""The real servers that sections measure with: Redis, Postgres, and an installation of Ratchet on both."""

import contextlib
import glob
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess

DEPLOY = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "deploy")
READY_SECONDS = 60
# RATCHET_PARTITIONS' default, and the lanes of QueueKeys.
PARTITIONS = 16
LANES = ("verify.live", "verify", "write.live", "write")


class RedisError(Exception):
    """What Redis answered instead."""


class Redis:
    """A private Redis on a unix socket and a free port. `command` speaks to it over a connection of its own."""

    def __init__(self, bench, appendfsync, core, maxmemory, settings):
        self.bench = bench
        self.folder = bench.new_folder("redis")
        self.socket = os.path.join(self.folder, "redis.sock")
        self.port = bench.free_port()
        self.url = f"unix://{self.socket}"
        lines = [f'include "{DEPLOY}/redis.conf"', "bind 127.0.0.1", f"port {self.port}", f"unixsocket {self.socket}",
                 f"dir {self.folder}", f"maxmemory {maxmemory}", "daemonize no", 'logfile ""', 'pidfile ""']
        lines += [f"appendfsync {appendfsync}"] if appendfsync else ["appendonly no"]
        lines += [f"{name.replace('_', '-')} {value}" for name, value in settings.items()]
        path = os.path.join(self.folder, "redis.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        self.process = bench.start("redis", ["redis-server", path], core=core)
        self._reader = None
        bench.wait_until(self._answers, READY_SECONDS, "starting redis", self.process)

    def _answers(self):
        try:
            return self.command("PING") == "PONG"
        except OSError:
            self._reader = None
            return False

    def command(self, *arguments):
        """One command: text, numbers, lists or None. Raises RedisError."""
        if self._reader is None:
            client = socket.socket(socket.AF_UNIX)
            client.connect(self.socket)
            self._client, self._reader = client, client.makefile("rb")
        parts = [part if isinstance(part, bytes) else str(part).encode() for part in arguments]
        self._client.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(one), one) for one in parts))
        return self._reply()

    def _reply(self):
        line = self._reader.readline()
        if not line:
            raise ConnectionError("redis closed the connection")
        kind, text = line[:1], line[1:-2].decode()
        if kind == b"-":
            raise RedisError(text)
        if kind == b":":
            return int(text)
        if kind == b"$":
            return None if text == "-1" else self._reader.read(int(text) + 2)[:-2].decode("utf-8", "replace")
        if kind == b"*":
            return None if text == "-1" else [self._reply() for _ in range(int(text))]
        return text

    def info(self, field):
        """One number of INFO."""
        for line in self.command("INFO", "everything").splitlines():
            if line.startswith(field + ":"):
                return float(line.partition(":")[2])
        raise KeyError(field)

    def cpu_seconds(self):
        """Of the server alone; the child that rewrites the append-only file is not in it."""
        return self.info("used_cpu_user") + self.info("used_cpu_sys")

    def empty(self):
        """Forgets everything, the append-only file too, so that no round pays for what another left."""
        self.command("FLUSHALL", "SYNC")
        if self.command("CONFIG", "GET", "appendonly")[1] == "yes":
            self.rewrite()

    def rewrite(self):
        """Rewrites the append-only file and waits for it."""
        with contextlib.suppress(RedisError):
            self.command("BGREWRITEAOF")
        self.bench.wait_until(
            lambda: self.info("aof_rewrite_in_progress") == 0 and self.info("aof_rewrite_scheduled") == 0, 120,
            "rewriting the append-only file", self.process)

    def stop(self):
        if self._reader is not None:
            self._reader.close()
            self._client.close()
            self._reader = None
        self.process.stop()


class Postgres:
    """A private cluster on a unix socket, run as the user postgres when we are root."""

    def __init__(self, bench, core, settings):
        self.bench = bench
        folders = [path for path in glob.glob("/usr/lib/postgresql/[0-9]*/bin") if int(path.split("/")[4]) >= 15]
        self.programs = max(folders, key=lambda path: int(path.split("/")[4]))
        self.folder = bench.new_folder("postgres")
        cluster = os.path.join(self.folder, "data")
        if os.geteuid() == 0:
            os.chmod(self.folder, 0o755)
            shutil.chown(self.folder, "postgres", "postgres")
        bench.run("initdb", [f"{self.programs}/initdb", "--pgdata", cluster, "--username=postgres", "--encoding=UTF8",
                             "--no-locale", "--auth-local=trust", "--auth-host=reject", "--data-checksums"],
                  user="postgres")
        own = {"listen_addresses": "", "port": 5432, "unix_socket_directories": self.folder, **settings}
        with open(os.path.join(DEPLOY, "postgresql.conf"), encoding="utf-8") as shared, \
                open(os.path.join(cluster, "postgresql.conf"), "w", encoding="utf-8") as file:
            file.write(shared.read() + "".join(f"{name} = '{value}'\n" for name, value in own.items()))
        self.process = bench.start("postgres", [f"{self.programs}/postgres", "-D", cluster], core=core, user="postgres",
                                   stop_signal=signal.SIGINT)
        bench.wait_until(self._answers, READY_SECONDS, "starting postgres", self.process)

    def _psql(self, database, *more):
        return [f"{self.programs}/psql", "--no-psqlrc", "-h", self.folder, "-U", "postgres", "-d", database, "-v",
                "ON_ERROR_STOP=1", "-Atq", *more]

    def _answers(self):
        return subprocess.run(self._psql("postgres", "-c", "select 1"), capture_output=True).returncode == 0

    def dsn(self, database="postgres", user="postgres"):
        return f"host={self.folder} port=5432 dbname={database} user={user}"

    def sql(self, text, database="postgres"):
        """Runs statements and answers what they print, columns with | between."""
        return self.bench.run("psql", self._psql(database, "-c", text)).strip()

    def create_database(self, name):
        """A new empty database of that name."""
        self.sql(f'drop database if exists "{name}" with (force)')
        self.sql(f'create database "{name}"')
        return self.dsn(name)

    def cpu_seconds(self):
        """Of the server and all its backends, also of those that ended."""
        return self.process.cpu_seconds()

    def stop(self):
        self.process.stop()


class System:
    """One installation. Its processes are started one by one, each on the core that a section wants it on."""

    def __init__(self, bench, redis, postgres, settings):
        self.bench, self.redis, self.postgres = bench, redis, postgres
        self.folder = bench.new_folder("ratchet")
        self.port = bench.free_port()
        database = os.path.basename(self.folder)
        self.env = {
            "RATCHET_MODE": "production", "RATCHET_SECRET": secrets.token_hex(32), "RATCHET_DATA": self.folder,
            "RATCHET_RUN_DIR": os.path.join(self.folder, "run"), "RATCHET_OPS_LISTEN": "127.0.0.1:0",
            "RATCHET_REDIS_URL": redis.url, "RATCHET_DURABILITY": "everysec",
            "RATCHET_PG": postgres.create_database(database), "RATCHET_INGRESS_PORT": str(self.port),
            "RATCHET_LOG_LEVEL": "warn", **{name: str(value) for name, value in settings.items()}}
        self.cli("migrate")

    def cli(self, *arguments):
        """Runs `ratchet` and answers its output."""
        return self.bench.run("ratchet", [self.bench.binary("ratchet"), *arguments], env=self.env)

    def connect(self, organization, bundle):
        """An organization with one app."""
        self.cli("orgs", "create", organization, "--name", organization)
        self.cli("apps", "connect", bundle, "--org", organization)

    def start(self, name, core=None, settings=None, ready=True):
        """Starts ratchet-<name> and waits until it says that it is ready. Two of one name need their own
        RATCHET_RUN_DIR in `settings`."""
        env = {**self.env, **{key: str(value) for key, value in (settings or {}).items()}}
        process = self.bench.start(name, [self.bench.binary(f"ratchet-{name}")], env=env, core=core)
        process.operations_file = os.path.join(env["RATCHET_RUN_DIR"], name + ".ops")
        if ready:
            self.bench.wait_until(lambda: self._get(process, "/readyz")[0] == 200, READY_SECONDS, f"starting {name}",
                                  process)
        return process

    def wait_known(self, bundle):
        """Until a running ingress stores what is posted for the bundle; a few jobs are in the queue then."""
        body = json.dumps({"bundleId": bundle, "appUserId": "first"})

        def known():
            # Ready is said a moment before the port is open.
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("POST", "/api/sdk/v1/identify", body)
                return "id" in json.loads(connection.getresponse().read())
            return False

        self.bench.wait_until(known, READY_SECONDS, f"waiting until {bundle} is known")

    def _get(self, process, path):
        try:
            with open(process.operations_file, encoding="utf-8") as file:
                host, _, port = file.read().strip().rpartition(":")
            connection = http.client.HTTPConnection(host, int(port), timeout=5)
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, ValueError, http.client.HTTPException):
            return 0, ""

    def metrics(self, process):
        """The lines of /metrics {name with labels: number}."""
        lines = [line for line in self._get(process, "/metrics")[1].splitlines() if line and line[0] != "#"]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def queues(self):
        """`ratchet queues --json`."""
        return json.loads(self.cli("queues", "--json"))

    def wait_empty(self, seconds=600):
        """Until no job waits any more."""
        self.bench.wait_until(lambda: self.waiting() == 0, seconds, "waiting for the queue to be empty")

    def waiting(self):
        """Jobs in all lanes, in hand and delayed ones too, read straight from Redis: cheap enough to poll."""
        total = 0
        for partition in range(int(self.env.get("RATCHET_PARTITIONS", PARTITIONS))):
            for lane in LANES:
                key = f"ratchet:q:{{{partition}}}:{lane}"
                total += self.redis.command("XLEN", key) + self.redis.command("ZCARD", key + ":due")
        return total
