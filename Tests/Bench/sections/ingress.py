"""`ingress`: processor time that one POST identify costs the server, beside servers that do the same or nothing.

The server alone is on core 0; wrk and Redis share core 1. At 64 connections that keeps servers busy; how busy is in the
figures, since an idle server pays more for each request.
"""

import json
import os
import resource
import socket
import statistics
import time

import harness

PEERS = os.path.join(harness.HERE, "peers", "ingress")
BUNDLE = "com.example.app"
NGINX = "nginx return 200"
HEADLINE = "everysec, 64 connections"
ANSWER = '{"ok":true,"id":"6912cdac-5ec1-8727-9f1b-a2e96f6759a7"}'
# appendfsync of Redis, and what the ingress is told that it promises.
MODES = {"off": None, "everysec": "everysec", "always": "fsync"}
# Every limit is on, and so high that a benchmark doesn't meet it.
LIMITS = {
    "RATCHET_LIMIT_UNATTESTED_PER_MINUTE": 1_000_000, "RATCHET_LIMIT_ADDRESS_PER_MINUTE": 1_000_000,
    "RATCHET_MAX_CONNECTIONS_PER_ADDRESS": 5_000, "RATCHET_MAX_CONNECTIONS": 5_000, "RATCHET_INGRESS_LOOPS": 1}
PACKAGES = ("uvicorn==0.54.0", "uvloop==0.23.0", "httptools==0.9.0", "starlette==1.10.0", "redis==8.1.0",
            "hiredis==3.5.0")


class Load:
    """Runs wrk against one server after the other and keeps what it saw."""

    def __init__(self, bench, redis):
        self.bench, self.redis = bench, redis
        self.seconds = 2 if bench.quick else 4
        self.seen = {}
        self.runs = 0

    def wrk(self, port, connections, seconds, peer):
        self.runs += 1
        env = {"SEED": str(self.runs), "METHOD": peer.method, "TARGET": peer.target}
        output = self.bench.run(
            "wrk", ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s",
                    os.path.join(PEERS, "identify.lua"), f"http://127.0.0.1:{port}/"], env=env, core=1)
        return json.loads(output.splitlines()[-1])

    def measure(self, name, peer, connections):
        """CPU µs of the server for each request that it answered with 200."""
        peer.prepare()
        port = self.bench.free_port()
        process = peer.start(port)
        self.bench.wait_until(lambda: listens(port), 20, f"starting {name}", process)
        # Pools, caches and Redis connections are there before it counts.
        self.wrk(port, connections, 1, peer)
        peer.forget()
        before, redis, load = process.cpu_seconds(), self.redis.cpu_seconds(), children_seconds()
        run = self.wrk(port, connections, self.seconds, peer)
        good = run["answers"] - run["refused"]
        load, redis = children_seconds() - load, self.redis.cpu_seconds() - redis
        cost = (process.cpu_seconds() - before) / max(1, good) * 1e6
        kept = peer.kept()
        process.stop()
        # Under way at the end of either run: stored, but not seen by wrk or not forgotten.
        if kept is not None and not good <= kept <= good + 2 * connections:
            raise harness.Fault(f"{name}: {good} requests answered 200, but redis has {kept} of them")
        self.note(name, run, good, cost, redis, load)
        return cost

    def note(self, name, run, good, cost, redis, load):
        """What shows whether a figure is what it claims to be."""
        rate = good / run["seconds"]
        self.seen.setdefault(name, []).append({
            "µs": cost, "requests/s": rate, "core 0 busy": rate * cost / 1e6, "redis µs": redis / max(1, good) * 1e6,
            "wrk µs": load / max(1, good) * 1e6, "p99 ms": run["p99us"] / 1000,
            "not 200": run["refused"] + run["broken"]})

    def figures(self, name):
        """The medians of a server's rounds; what was refused is added up."""
        rows = self.seen[name]
        found = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        return found | {"not 200": sum(row["not 200"] for row in rows)}


def children_seconds():
    """Processor time of commands that have ended; while wrk is measured, it is the only one."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Peer:
    """A server that answers identify. One without a stream keeps nothing."""

    method, target, stream = "POST", "/api/sdk/v1/identify", "peer"

    def __init__(self, bench, redis):
        self.bench, self.redis = bench, redis

    def prepare(self):
        set_append_only(self.redis, "everysec")

    def forget(self):
        self.redis.command("DEL", "peer")
        self.redis.rewrite()

    def kept(self):
        return self.redis.command("XLEN", self.stream) if self.stream else None


def set_append_only(redis, mode):
    """Switches Redis to a kind of append-only file and starts it anew."""
    if mode == "off":
        redis.command("CONFIG", "SET", "appendonly", "no")
        return
    redis.command("CONFIG", "SET", "appendonly", "yes", "appendfsync", mode)
    redis.rewrite()


class Ours(Peer):
    def __init__(self, bench, redis, system, mode):
        super().__init__(bench, redis)
        self.system, self.mode = system, mode

    def prepare(self):
        set_append_only(self.redis, self.mode)

    def start(self, port):
        settings = {**LIMITS, "RATCHET_INGRESS_PORT": port}
        if MODES[self.mode]:
            settings["RATCHET_DURABILITY"] = MODES[self.mode]
        else:
            settings["RATCHET_REDIS_UNCHECKED"] = 1
        return self.system.start("ingress", core=0, settings=settings)

    def forget(self):
        """Takes the waiting jobs away without touching anything else that the queue knows."""
        for partition in range(16):
            start = f"ratchet:q:{{{partition}}}:"
            self.redis.command("XTRIM", start + "write", "MAXLEN", "0")
            self.redis.command("DEL", start + "backlog")
        if self.mode != "off":
            self.redis.rewrite()

    def kept(self):
        return self.system.waiting()


class Nginx(Peer):
    """`return 200` and nothing else: what HTTP alone costs in a server written for it."""

    stream = None

    def lines(self):
        return [f"location / {{ default_type application/json; return 200 '{ANSWER}'; }}"]

    def top(self):
        return []

    def start(self, port):
        folder = self.bench.new_folder("nginx")
        path = os.path.join(folder, "nginx.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join([
                *self.top(), "daemon off; worker_processes 1; pid nginx.pid; error_log error.log;",
                f"user {'root' if os.geteuid() == 0 else 'nobody'};",
                "events { worker_connections 8192; }",
                "http { access_log off; keepalive_requests 1000000000; client_body_temp_path body;",
                "lua_package_cpath '/usr/lib/x86_64-linux-gnu/lua/5.1/?.so;;';" if self.top() else "",
                f"server {{ listen 127.0.0.1:{port} backlog=4096; client_body_buffer_size 64k;",
                *self.lines(), "} }"]) + "\n")
        return self.bench.start("nginx", ["nginx", "-p", folder, "-c", path], core=0)


class NginxLua(Nginx):
    stream = "peer"

    def top(self):
        return ["load_module /usr/lib/nginx/modules/ndk_http_module.so;",
                "load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;"]

    def lines(self):
        return [f"set $redis_socket {self.redis.socket};",
                f"location / {{ content_by_lua_file {os.path.join(PEERS, 'push.lua')}; }}"]


class Webdis(Peer):
    """Hands the body to XADD as it is: nothing is parsed or checked."""

    method, target = "PUT", "/XADD/peer/*/d"

    def start(self, port):
        folder = self.bench.new_folder("webdis")
        path = os.path.join(folder, "webdis.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({
                "redis_host": "127.0.0.1", "redis_port": self.redis.port, "http_host": "127.0.0.1", "http_port": port,
                "threads": 1, "pool_size": 16, "daemonize": False, "websockets": False, "database": 0,
                "acl": [{"disabled": ["DEBUG"]}], "verbosity": 0, "logfile": os.path.join(folder, "log")}, file)
        return self.bench.start("webdis", ["webdis", path], core=0)


class Node(Peer):
    def start(self, port):
        return self.bench.start("node", ["node", os.path.join(PEERS, "server.js"), port, self.redis.socket], core=0)


class Uvicorn(Peer):
    python = None

    def start(self, port):
        return self.bench.start(
            "uvicorn", [self.python, "-m", "uvicorn", "app:app", "--port", port, "--no-access-log", "--log-level",
                        "warning", "--loop", "uvloop", "--http", "httptools", "--backlog", "4096"],
            env={"REDIS_SOCKET": self.redis.socket}, core=0, cwd=PEERS)


def peers(bench, redis):
    """Those that can be had {name: server}, and the names of the others."""
    wanted = {NGINX: (Nginx, lambda: bench.debian("nginx"))}
    if not bench.quick:
        wanted |= {
            "webdis": (Webdis, lambda: bench.debian("webdis")),
            "nginx + lua": (NginxLua, lambda: bench.debian("libnginx-mod-http-lua", "lua-cjson")),
            "Node http": (Node, lambda: bench.debian("nodejs")),
            "uvicorn + starlette + redis-py": (Uvicorn, lambda: bench.python_peer(*PACKAGES))}
    found, missing = {}, []
    for name, (kind, install) in wanted.items():
        have = install()
        if have:
            found[name] = kind(bench, redis)
            found[name].python = have
        else:
            missing.append(name)
    return found, missing


def installation(bench, redis):
    """A system whose directory is published, and nothing running: the ingress is what is measured."""
    system = bench.system(redis, bench.postgres(core=1))
    writer = system.start("writer", core=1)
    system.connect("example", BUNDLE)
    ingress = system.start("ingress", core=0)
    system.wait_known(BUNDLE)
    system.wait_empty()
    for process in (ingress, writer, system.postgres):
        process.stop()
    return system


def plural(count):
    return f"{count} connection{'s' if count > 1 else ''}"


def measure(bench):
    if not bench.debian("wrk"):
        raise harness.Fault("wrk is missing: nothing can be measured without it")
    # A rewrite of the file in the middle of a round would count for whoever is measured then.
    redis = bench.redis("everysec", core=1, maxmemory="8gb", auto_aof_rewrite_percentage=0)
    system = installation(bench, redis)
    load = Load(bench, redis)
    others, missing = peers(bench, redis)
    counts = (64,) if bench.quick else (1, 64, 1000)
    things = {}
    for mode in ("everysec",) if bench.quick else MODES:
        for count in counts:
            name = f"{mode}, {plural(count)}"
            ours = Ours(bench, redis, system, mode)
            things[name] = lambda name=name, ours=ours, count=count: load.measure(name, ours, count)
    for name, peer in others.items():
        things[name] = lambda name=name, peer=peer: load.measure(name, peer, 64)
    # An idle server wakes up for each request, a full one for many: ours is to be compared at the same count.
    for count in () if bench.quick or NGINX not in others else (1, 1000):
        name = f"{NGINX}, {plural(count)}"
        things[name] = lambda name=name, count=count: load.measure(name, others[NGINX], count)
    began = time.monotonic()
    values = bench.interleaved(bench.rounds, things)
    bench.progress(f"measured in {time.monotonic() - began:.0f} s")
    return answer(bench, load, values, list(others), missing)


def answer(bench, load, values, others, missing):
    chosen = {name: values[name] for name in (HEADLINE, *others)}
    variants = {name: load.figures(name) for name in values}
    for name in others:
        variants[f"requests per CPU second, x {name}"] = harness.summary(harness.ratios(values[name], values[HEADLINE]))
    refused = sum(figures["not 200"] for figures in variants.values() if "not 200" in figures)
    return harness.section(
        chosen, HEADLINE, unit="CPU µs per request, 64 connections, AOF everysec",
        pinned="server on core 0, wrk and Redis on core 1; one event loop or worker each", ratio_to=NGINX,
        inverted=True, missing=missing, variants=variants,
        notes=[bench.versions("nginx", "webdis", "libnginx-mod-http-lua", "nodejs", "redis-server", "wrk"),
               " ".join(PACKAGES), f"bodies of 10,000 users, none sent twice; {refused} requests not answered with 200",
               "every 200 of a server that stores was found in Redis; limits are on and higher than the load"])
