"""Draining the queue into Postgres by real writers, and watching workers of any kind do it."""

import os
import time

import harness

USERS = 10_000
# What taskset takes; every process of a drain runs there, and the sections say so.
CORES = "0,1" if os.cpu_count() > 1 else "0"
PINNED = "all on cores " + CORES
SUM_OF_LENGTHS = "local n = 0; for _, key in ipairs(KEYS) do n = n + redis.call('XLEN', key) end; return n"


class Drain:
    """One installation, and the servers that it shares with others. Workers, Redis and Postgres compete for two cores,
    as on a small machine."""

    def __init__(self, bench, redis, postgres, users=USERS):
        self.bench, self.redis, self.postgres, self.users = bench, redis, postgres, users
        self.system = bench.system(redis, postgres)
        self.database = os.path.basename(self.system.folder)
        # CPU microseconds a job by name, one for each run; of the workers, Redis and Postgres.
        self.cpu = {}

    def sql(self, text):
        return self.postgres.sql(text, self.database)

    def fill(self, jobs, *more):
        """Puts jobs into an empty queue by the ingress' own intake."""
        self.redis.empty()
        self.bench.bench_main("enqueue", "--redis", self.redis.url, "--jobs", str(jobs), "--users", str(self.users),
                              *more, core=CORES)

    def waiting(self, suffix=""):
        """Jobs in the write lane, those in hand too: in one call, since it is asked often."""
        keys = [f"ratchet:q:{{{partition}}}:write{suffix}" for partition in range(16)]
        return self.redis.command("EVAL", SUM_OF_LENGTHS, len(keys), *keys)

    def writers(self, count):
        return [self.system.start("writer", core=CORES, ready=False,
                                  settings={"RATCHET_RUN_DIR": f"{self.system.folder}/run{number}"})
                for number in range(count)]

    def all(self, name, jobs, processes):
        """Jobs/s of writers until the queue is empty, which must leave neither dead letters nor delayed jobs."""
        rate = self.observe(name, lambda: jobs - self.waiting(), processes, 0.02, total=jobs)
        dead = self.waiting(":dead")
        if dead or self.system.waiting():
            raise harness.Fault(f"{dead} of {jobs} jobs became dead letters, {self.system.waiting()} are tried again")
        return rate

    def observe(self, name, done, processes, pause, total=None, seconds=120, most=None):
        """Jobs/s between the first look that found some done and the last one: when all are done (`total`), or after
        `seconds`, or when `most` jobs are done, which is all there are and need not be reached."""
        deadline, first = time.monotonic() + 60, None
        while True:
            count, now = done(), time.monotonic()
            if count and first is None:
                first = (count, now, self._cpu_seconds(processes))
                deadline = now + seconds
            if now > deadline or first and count >= (total or most or count + 1):
                break
            ended = [process for process in processes if not process.running()]
            if ended:
                raise harness.Fault(f"{name} ended: {ended[0].tail()}")
            time.sleep(pause)
        if first is None or count == first[0] or total and count < total:
            raise harness.Fault(f"{name} did {count} jobs and no more: {processes[0].tail()}")
        spent = self._cpu_seconds(processes) - first[2]
        self.cpu.setdefault(name, []).append(1e6 * spent / (count - first[0]))
        return (count - first[0]) / (now - first[1])

    def _cpu_seconds(self, processes):
        return sum(process.cpu_seconds() for process in processes) + self.postgres.cpu_seconds() \
            + self.redis.cpu_seconds()
