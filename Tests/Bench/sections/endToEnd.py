"""Jobs that wait in the queue until all are in Postgres, by the real ratchet-writer; beside it the same upsert as a job
in five job systems, and in a plain batching consumer. Then the way of single writes, and a drain with a kill."""

import os
import signal
import statistics
import time

import drains
import harness

BASE = ("redis==5.3.1", "hiredis==3.5.0", "psycopg[binary]==3.3.9")
PEERS = os.path.join(harness.HERE, "peers", "endToEnd")
BATCHING = ("batching consumer", "batching consumer, 2 processes")
# So long is each peer watched; it gets more jobs than it could do until then at its last measuring.
DRAIN_SECONDS = 9
QUICK_DRAIN_SECONDS = 3
RATE = 2_000


class Peer:
    """One job system: how it is given jobs and what works them off, as its best trial was set up."""

    def __init__(self, name, jobs, enqueue, workers, requirements=(), packages=()):
        self.name, self.jobs, self.enqueue, self.workers = name, jobs, enqueue, workers
        self.requirements, self.packages = requirements, packages


def peers(python):
    tools = os.path.join(os.path.dirname(python), "")
    fill = [python, "enqueue.py"]
    celery = [python, f"{tools}celery", "-A", "celery_tasks", "worker", "--without-gossip", "--without-mingle",
              "--without-heartbeat", "-l", "WARNING", "-P", "threads", "-c", "4", "-n"]
    consumer = [python, "batching.py"]
    return [
        Peer(BATCHING[0], 150_000, fill + ["batching"], [consumer]),
        Peer(BATCHING[1], 250_000, fill + ["batching"], [consumer, consumer]),
        Peer("Sidekiq", 40_000, ["ruby", "sidekiq_enqueue.rb"],
             [["sidekiq", "-q", "default", "-c", "5", "-r", "./sidekiq_worker.rb"]] * 2,
             packages=("ruby-sidekiq", "ruby-pg")),
        Peer("Huey", 30_000, fill + ["huey_tasks"], [[f"{tools}huey_consumer", "huey_tasks.huey", "-k", "process", "-w",
                                                      "4", "-q"]], ("huey==3.5.4",)),
        Peer("dramatiq", 40_000, fill + ["dramatiq_tasks"],
             [[f"{tools}dramatiq", "dramatiq_tasks", "-p", "2", "-t", "8"]], ("dramatiq==2.2.1",)),
        Peer("Celery", 9_000, fill + ["celery_tasks"], [celery + ["one@bench"], celery + ["two@bench"]],
             ("celery==5.6.3", "kombu==5.6.2", "packaging==25.0")),
        Peer("RQ", 5_000, fill + ["rq_tasks"], [[f"{tools}rq", "worker-pool", "-n", "4", "-q", "-w",
                                                 "rq.worker.SimpleWorker", "-u", "$REDIS_URL", "default"]],
             ("rq==3.0.0",)),
    ]


class EndToEnd(drains.Drain):
    """All drains use the same Redis, synced each second, and the same Postgres, which syncs every commit."""

    def __init__(self, bench):
        super().__init__(bench, bench.redis("everysec", core=drains.CORES), bench.postgres(core=drains.CORES))
        self.kills = []

    def reset(self, jobs, *more):
        self.sql("truncate ratchet.customers, ratchet.purchases, ratchet.purchase_owner_writes, ratchet.transactions")
        self.sql("checkpoint")
        self.fill(jobs, *more)

    def ours(self, name, writers, jobs):
        self.reset(jobs)
        processes = self.writers(writers)
        rate = self.all(name, jobs, processes)
        for process in processes:
            process.stop()
        customers = int(self.sql("select count(*) from ratchet.customers"))
        if customers != self.users:
            raise harness.Fault(f"{jobs} jobs of {self.users} users left {customers} customers")
        return rate

    def killed(self, jobs):
        """The same with both writers killed when a third is done and started again at once; three jobs in four leave an
        attribute of their own, the others a purchase of their own."""
        self.reset(jobs, "--attributes", "4", "--unique", "1")
        processes = self.writers(2)
        self.bench.wait_until(lambda: self.waiting() < jobs * 2 // 3, 120, "the first third", processes[0])
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        killed = time.monotonic()
        left = self.waiting()
        for process in processes:
            process.stop()
        processes = self.writers(2)
        self.bench.wait_until(lambda: self.waiting() == 0, 300, "the drain after a kill", processes[0])
        seconds = time.monotonic() - killed
        for process in processes:
            process.stop()
        attributes, purchases, links = map(int, self.sql(
            "select (select count(*) from ratchet.customers, jsonb_object_keys(attributes) as key "
            "where key like 'job@_%' escape '@'), "
            "(select count(distinct lineage) from ratchet.purchase_owner_writes), "
            "(select count(*) from ratchet.purchase_owner_writes)").split("|"))
        self.kills.append({"left at the kill": left, "seconds to done": seconds,
                           "missing": jobs - attributes - purchases, "doubled": links - purchases})
        return seconds

    def peer(self, peer):
        seconds = QUICK_DRAIN_SECONDS if self.bench.quick else DRAIN_SECONDS
        jobs = peer.jobs * (seconds + 1) // DRAIN_SECONDS
        self.redis.empty()
        dsn = self.postgres.create_database("peer")
        with open(os.path.join(PEERS, "schema.sql"), encoding="utf-8") as file:
            self.postgres.sql(file.read(), "peer")
        self.postgres.sql("checkpoint")
        url = f"redis://127.0.0.1:{self.redis.port}/0"
        env = {"REDIS_URL": url, "PG_DSN": dsn, "RUBYOPT": "-W0", "RAILS_ENV": "production",
               "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": PEERS}
        self.bench.run("enqueue", peer.enqueue + [str(jobs)], env=env, cwd=PEERS, core=drains.CORES)
        processes = [
            self.bench.start(peer.name.split(",")[0].replace(" ", "-"),
                             [url if one == "$REDIS_URL" else one for one in worker],
                             env=dict(env, CONSUMER=f"c{number}"), cwd=PEERS, core=drains.CORES)
            for number, worker in enumerate(peer.workers)]

        def done():
            return int(self.postgres.sql("select coalesce(sum(hits), 0) from customers", "peer"))

        rate = self.observe(peer.name, done, processes, 0.5, seconds=seconds, most=jobs)
        for process in processes:
            process.stop()
        return rate


def latencies(bench, drain, appendfsync, seconds):
    """Milliseconds from the moment a call was due until another session saw its row."""
    redis = drain.redis if appendfsync == "everysec" else bench.redis(appendfsync, core=drains.CORES)
    redis.empty()
    # All limits are on; the one of an address is wide enough for one that stands for a proxy.
    system = bench.system(redis, drain.postgres, RATCHET_LIMIT_ADDRESS_PER_MINUTE=1_000_000,
                          RATCHET_DURABILITY="everysec" if appendfsync == "everysec" else "fsync")
    system.connect("demo", "com.example.app")
    processes = [system.start(name, core=drains.CORES) for name in ("writer", "ingress")]
    found = bench.bench_main(
        "latency", "--port", str(system.port), "--postgres", system.env["RATCHET_PG"], "--schema", "ratchet",
        "--organization", "demo", "--bundle", "com.example.app", "--rate", str(RATE), "--seconds", str(seconds),
        core=drains.CORES)
    for process in reversed(processes):
        process.stop()
    if redis is not drain.redis:
        redis.stop()
    return {name: value / 1e6 if name != "calls" else value for name, value in found.items()}


def measure(bench):
    drain = EndToEnd(bench)
    jobs = 20_000 if bench.quick else 200_000
    things = {"1 writer": lambda: drain.ours("1 writer", 1, jobs),
              "2 writers": lambda: drain.ours("2 writers", 2, jobs)}
    failed = {}

    def tried(peer):
        """One that breaks is said to be missing; the others are still measured."""
        if peer.name not in failed:
            try:
                return drain.peer(peer)
            except harness.Fault as fault:
                lines = [line.strip() for line in str(fault).strip().splitlines()]
                failed[peer.name] = lines[0][:120] + (" ... " + lines[-1][:120] if len(lines) > 1 else "")
                bench.progress(f"{peer.name} failed: {failed[peer.name]}")
        return 0

    python = bench.python_peer(*BASE)
    missing = [] if python else list(BATCHING)
    for peer in peers(python) if python else []:
        if bench.quick and peer.name not in BATCHING:
            continue
        if peer.requirements and not bench.python_peer(*BASE, *peer.requirements) or \
                peer.packages and not bench.debian(*peer.packages):
            missing.append(peer.name)
            continue
        things[peer.name] = lambda peer=peer: tried(peer)
    values = bench.interleaved(bench.rounds, things)
    for name, reason in failed.items():
        values.pop(name)
        drain.cpu.pop(name, None)
        missing.append(f"{name} ({reason})")

    ours = max(("1 writer", "2 writers"), key=lambda name: statistics.median(values[name]))
    systems = [name for name in values if name not in BATCHING and not name.endswith(("writer", "writers"))]
    consumers = [name for name in BATCHING if name in values]
    fastest = {kind: max(names, key=lambda name: statistics.median(values[name]), default=None)
               for kind, names in (("system", systems), ("consumer", consumers))}
    found = harness.section(
        values, ours, "jobs/s", drains.PINNED,
        ratio_to=fastest["system"] or fastest["consumer"], missing=missing)
    for name in consumers:
        same = "2 writers" if "2" in name else "1 writer"
        found.variants[f"{same} / {name}"] = harness.summary(harness.ratios(values[same], values[name]))
    for name, costs in drain.cpu.items():
        found.variants[f"{name}: CPU us/job, all processes"] = harness.summary(costs)
    for appendfsync in ("always", "everysec"):
        runs = [latencies(bench, drain, appendfsync, 4 if bench.quick else 12) for _ in range(bench.rounds)]
        bench.progress(f"accepted to committed, AOF {appendfsync}: p99 {runs[-1]['committedP99']:.1f} ms")
        for what, title in (("committed", "sent to committed"), ("answered", "sent to answered")):
            found.variants[f"{title}, ms, {RATE:,}/s, AOF {appendfsync}"] = {
                one.lower(): statistics.median([run[what + one] for run in runs]) for one in ("P50", "P99", "Max")}
    for _ in range(bench.rounds):
        bench.progress(f"done {drain.killed(jobs):.1f} s after both writers were killed")
    found.variants["both writers killed"] = {
        name: max(kill[name] for kill in drain.kills) for name in drain.kills[0]}
    found.notes = [
        f"the ratio is to {fastest['system'] or fastest['consumer']}; ours is {ours}",
        "latency: from the moment a call was due until a second session, looking each millisecond, saw its row; the "
        "greatest of all rounds' calls is max",
        "a kill is SIGKILL to both writers at a third of the jobs; missing and doubled are counted in Postgres",
    ]
    return found
