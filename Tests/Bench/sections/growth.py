"""What the same jobs cost as the table of customers grows: 10,000, 100,000 and a million customers, jobs spread over
all of them, drained by one real ratchet-writer."""

import statistics

import drains
import harness


class Decade(drains.Drain):
    """An installation with so many customers."""

    def __init__(self, bench, redis, postgres, users, jobs):
        super().__init__(bench, redis, postgres, users)
        self.jobs, self.next = jobs, 0
        self.writer, self.database_memory, self.wal = [], [], []
        bench.progress(f"making {users:,} customers")
        bench.bench_main("customers", "--postgres", self.system.env["RATCHET_PG"], "--schema", "ratchet", "--users",
                         str(users), core=drains.CORES)

    def position(self):
        return int(self.sql("select (pg_current_wal_insert_lsn() - '0/0')::bigint"))

    def drain(self):
        # Other jobs each time, so that a round finds no pages in memory because of the one before.
        more = ["--first", str(self.next)] if self.next else []
        self.next += self.jobs
        self.fill(self.jobs, *more)
        before = self.position()
        processes = self.writers(1)
        rate = self.all("drain", self.jobs, processes)
        self.writer.append(processes[0].rss_bytes() / 1e6)
        self.database_memory.append(self.postgres.process.pss_bytes() / 1e6)
        processes[0].stop()
        self.wal.append((self.position() - before) / self.jobs)
        return rate


def measure(bench):
    jobs = 20_000 if bench.quick else 150_000
    sizes = [10_000, 100_000] if bench.quick else [10_000, 100_000, 1_000_000]
    redis, postgres = bench.redis("everysec", core=drains.CORES), bench.postgres(core=drains.CORES)
    decades = {f"{size:,} customers": Decade(bench, redis, postgres, size, jobs) for size in sizes}
    # After a checkpoint each page is written to the log as a whole when it first changes: once in 15 minutes, not once
    # a drain. So the first drains are not counted.
    postgres.sql("checkpoint")
    for decade in decades.values():
        decade.drain()
    for decade in decades.values():
        for values in (decade.writer, decade.database_memory, decade.wal, decade.cpu["drain"]):
            values.clear()
    values = bench.interleaved(bench.rounds, {name: decade.drain for name, decade in decades.items()})

    names = list(values)
    found = harness.section(
        values, names[-1], "jobs/s", drains.PINNED)
    steps = [harness.ratios(values[more], values[less]) for less, more in zip(names, names[1:])]
    worst = min(steps, key=statistics.median)
    found.ratio, found.ratio_min, found.ratio_max = statistics.median(worst), min(worst), max(worst)
    for less, more in zip(names, names[1:]):
        found.variants[f"CPU time a job, {less} / {more}"] = harness.summary(
            harness.ratios(decades[less].cpu["drain"], decades[more].cpu["drain"]))
    for name, decade in decades.items():
        found.variants[f"{name}: CPU us/job, all processes"] = harness.summary(decade.cpu["drain"])
        found.variants[f"{name}: RSS of the writer, MB"] = harness.summary(decade.writer)
        found.variants[f"{name}: memory of Postgres, MB"] = harness.summary(decade.database_memory)
        found.variants[f"{name}: bytes of WAL a job"] = harness.summary(decade.wal)
    found.notes = [f"ours is with {names[-1]}; the ratio is that of the worst step of ten times as many",
                   f"{jobs:,} jobs a drain by one writer, each to another customer than its neighbours"]
    return found
