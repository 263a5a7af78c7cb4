"""`queue`: what the queue's scripts cost Redis, beside bare stream commands with the same bytes in the same batches.

Redis' own processor time for each entry is the figure that stands still; wall rates beside it depend on the caller too.
Redis is alone on core 1, the caller on core 0. The append-only file is synced each second.
"""

import json
import os
import statistics
import time

import harness

BATCH = 16
# Batches that workers settle in.
LARGER = (128, 1024)
PAYLOAD_BYTES = 400


class Rounds:
    """Runs one end of the queue, ours or bare, and reads Redis before and after."""

    def __init__(self, bench, redis, jobs):
        self.bench, self.redis, self.jobs = bench, redis, jobs
        self.bare = bench.compile_c("peers/queue/bare.c", ["hiredis"])
        self.seen = {}
        self.header = None

    def ours_accept(self, partitions=1, batch=BATCH):
        return self.bench.bench_main("queue-accept", "--redis", self.redis.url, "--jobs", str(self.jobs), "--batch",
                                     str(batch), "--partitions", str(partitions))["seconds"]

    def ours_settle(self, batch, partitions=1):
        return self.bench.bench_main("queue-settle", "--redis", self.redis.url, "--jobs", str(self.jobs), "--batch",
                                     str(batch), "--partitions", str(partitions))["seconds"]

    def bare_run(self, *arguments):
        output = self.bench.run("bare", [self.bare, self.redis.socket, *arguments], core=0)
        return json.loads(output)["seconds"]

    def bare_accept(self, batch=BATCH):
        # The header of an entry of ours, so that the bytes are the same.
        payload = "x" * PAYLOAD_BYTES
        return self.bare_run("add", str(self.jobs), str(batch), self.header, payload)

    def bare_settle(self, batch):
        return self.bare_run("settle", str(self.jobs), str(batch))

    def timed(self, name, run, *arguments):
        """Runs one end; answers Redis' CPU µs for each entry, and notes what else changed."""
        file, memory = self.redis.info("aof_current_size"), self.redis.info("used_memory")
        spent = self.redis.cpu_seconds()
        seconds = run(*arguments)
        spent = self.redis.cpu_seconds() - spent
        cost = spent / self.jobs * 1e6
        self.seen.setdefault(name, []).append({
            "redis µs": cost, "entries/s of wall": self.jobs / seconds, "redis busy": spent / seconds,
            "AOF B": (self.redis.info("aof_current_size") - file) / self.jobs,
            "memory B": (self.redis.info("used_memory") - memory) / self.jobs})
        return cost

    def learn_header(self):
        """What stands beside the payload in an entry of ours."""
        for partition in range(16):
            entries = self.redis.command("XRANGE", f"ratchet:q:{{{partition}}}:write", "-", "+", "COUNT", "1")
            if entries:
                fields = dict(zip(entries[0][1][::2], entries[0][1][1::2]))
                self.header = fields["h"]
                return
        raise harness.Fault("no entry is in the queue")

    def both_ends(self, name, accept, settle):
        """Jobs in and out again; entries for each second of Redis' processor."""
        self.redis.empty()
        cost = self.timed(f"{name}: accept", *accept)
        if self.header is None:
            self.learn_header()
        cost += self.timed(f"{name}: settle", *settle)
        return 1e6 / cost

    def ours(self, batch, partitions):
        return self.both_ends(f"ours, batches of {batch}", (self.ours_accept, partitions, min(batch, 64)),
                              (self.ours_settle, batch, partitions))

    def beside(self, batch):
        return self.both_ends(f"bare, batches of {batch}", (self.bare_accept, batch), (self.bare_settle, batch))

    def figures(self):
        return {name: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
                for name, rows in self.seen.items()}


def measure(bench):
    bench.debian("libhiredis-dev")
    redis = bench.redis("everysec", core=1, maxmemory="8gb", auto_aof_rewrite_percentage=0)
    rounds = Rounds(bench, redis, 20_000 if bench.quick else 200_000)
    # Its figures are not kept: this only learns what an entry looks like, and warms.
    rounds.both_ends("first", (rounds.ours_accept, 1, BATCH), (rounds.ours_settle, BATCH, 1))
    rounds.seen.clear()
    things = {"ours": lambda: rounds.ours(BATCH, 1), "XADD, XREADGROUP, XACK, XDEL": lambda: rounds.beside(BATCH)}
    for batch in () if bench.quick else LARGER:
        things[f"ours, {batch}"] = lambda batch=batch: rounds.ours(batch, 16)
        things[f"bare, {batch}"] = lambda batch=batch: rounds.beside(batch)
    values = bench.interleaved(bench.rounds, things)
    variants = rounds.figures()
    for batch in (BATCH,) if bench.quick else (BATCH, *LARGER):
        for end in ("accept", "settle"):
            pair = [[row["redis µs"] for row in rounds.seen[f"{who}, batches of {batch}: {end}"]]
                    for who in ("bare", "ours")]
            variants[f"{end}, batches of {batch}: ratio to bare"] = harness.summary(harness.ratios(*pair))
    variants |= million(bench, redis)
    headline = {name: values[name] for name in ("ours", "XADD, XREADGROUP, XACK, XDEL")}
    return harness.section(
        headline, "ours", unit="entries in and out per second of Redis' CPU, batches of 16", ratio_to=list(headline)[1],
        pinned="Redis on core 1, the caller on core 0; AOF everysec", variants=variants,
        notes=[f"{rounds.jobs:,} jobs of {PAYLOAD_BYTES} bytes a round; bare entries have the same two fields",
               "batches of 16: one call at a time in one partition; larger ones: 16 partitions, 64 in a call at most",
               "slowest script: by Redis' clock, which runs on while it waits for a core; the calmest of the rounds"])


def million(bench, redis):
    """Every use of the scripts at its fullest, and what operators and live calls wait for, with a backlog."""
    jobs = 100_000 if bench.quick else 1_000_000
    bench.progress(f"{jobs:,} jobs waiting")
    redis.empty()
    memory = redis.info("used_memory")
    waiting = bench.bench_main("queue-accept", "--redis", redis.url, "--jobs", str(jobs), "--batch", "64")
    each = (redis.info("used_memory") - memory) / jobs
    looks = [seconds_of_queues(bench, redis) for _ in range(7)]
    redis.empty()
    bench.progress(f"every script with {jobs:,} jobs waiting")
    runs = bench.bench_main("queue-slowest", "--redis", redis.url, "--jobs", str(jobs), "--repeat", str(bench.rounds))
    slowest = {name: value for name, value in runs.items() if not name.endswith(" worst")}
    name = max(slowest, key=slowest.get)
    redis.empty()
    # So few that the backlog is still there at the last.
    live = bench.bench_main("queue-live", "--redis", redis.url, "--jobs", str(jobs // 5), "--live",
                            "10" if bench.quick else "200")
    redis.empty()
    return {
        f"memory of a waiting job, {jobs:,} waiting": {"B": each, "x its payload": each / PAYLOAD_BYTES},
        f"accepted/s of wall, {jobs:,} in a row": jobs / waiting["seconds"],
        f"ratchet queues with {jobs:,} waiting, s": harness.summary(looks),
        f"slowest script with {jobs:,} waiting ({name})": {"ms": slowest[name], "worst ms": max(runs.values())},
        "slowest run of each script, ms": dict(sorted(slowest.items(), key=lambda one: -one[1])),
        f"live job beside {jobs // 5:,} bulk jobs, ms": live}


def seconds_of_queues(bench, redis):
    """How long an operator waits for `ratchet queues`."""
    env = {"RATCHET_REDIS_URL": redis.url, "RATCHET_MODE": "development", "RATCHET_DATA": bench.run_folder}
    began = time.monotonic()
    bench.run("ratchet", [bench.binary("ratchet"), "queues"], env=env, core=0)
    return time.monotonic() - began
