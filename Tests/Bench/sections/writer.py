"""Jobs joined and committed by the writer's own worker loop and handler, beside the least that a writer can be: one C
program that upserts as many plain rows, 1,024 a statement. Both wait for each commit to be on disk."""

import json

import harness

# Three identify calls for one attribute call, every other of which carries a signed transaction: 1.6 rows a job.
ATTRIBUTE_EVERY = 4
USERS = 10_000
BATCH = 1_024


def measure(bench):
    postgres = bench.postgres(core=1)
    upsert = bench.compile_c("peers/c/upsert.c", ["libpq"])
    batched, single = (40_000, 400) if bench.quick else (200_000, 8_000)
    runs = {}

    def keep(name, run):
        if name.startswith("ours") and run["rows"] < run["jobs"]:
            raise harness.Fault(f"{run['jobs']} jobs left only {run['rows']} rows behind")
        runs.setdefault(name, []).append(run)
        return run["rows"] / run["seconds"]

    def ours(name, jobs, batch):
        dsn = postgres.create_database("writer")
        postgres.sql("checkpoint")
        return keep(name, bench.bench_main(
            "writer", "--postgres", dsn, "--schema", "ratchet", "--jobs", str(jobs), "--batch", str(batch), "--users",
            str(USERS), "--attributes", str(ATTRIBUTE_EVERY), core=0))

    def plain(name, beside, batch):
        # As many rows as ours wrote in the first round; it is the same number in each.
        rows = int(runs[beside][0]["rows"])
        dsn = postgres.create_database("writer")
        postgres.sql("checkpoint")
        output = bench.run("upsert", [upsert, dsn, str(rows), str(batch), str(USERS)], core=0)
        return keep(name, json.loads(output.splitlines()[-1]))

    values = bench.interleaved(bench.rounds, {
        "ours": lambda: ours("ours", batched, BATCH),
        "C, unnest of 1,024 plain rows": lambda: plain("C", "ours", BATCH),
        "ours, one job a commit": lambda: ours("ours, one", single, 1),
        "C, one plain row a commit": lambda: plain("C, one", "ours, one", 1),
    })

    def per_row(name, *fields):
        return [1e6 * sum(run[field] for field in fields) / run["rows"] for run in runs[name]]

    found = harness.section(
        values, "ours", "rows/s", "writer core 0, Postgres core 1", ratio_to="C, unnest of 1,024 plain rows")
    cpu = ("writerSeconds", "backendSeconds")
    found.variants = {
        "jobs/s": harness.summary([run["jobs"] / run["seconds"] for run in runs["ours"]]),
        "ratio of CPU time": harness.summary(harness.ratios(per_row("C", *cpu), per_row("ours", *cpu))),
        "ratio, one by one": harness.summary(
            harness.ratios(values["ours, one job a commit"], values["C, one plain row a commit"])),
    }
    for name in runs:
        found.variants[f"{name}: CPU us/row of the writer"] = harness.summary(per_row(name, "writerSeconds"))
        found.variants[f"{name}: CPU us/row of its backend"] = harness.summary(per_row(name, "backendSeconds"))
        found.variants[f"{name}: bytes of WAL a row"] = harness.summary(
            [run["walBytes"] / run["rows"] for run in runs[name]])
    first = runs["ours"][0]
    found.notes = [
        f"{first['jobs']:,.0f} jobs, one in {ATTRIBUTE_EVERY} an attribute call, {USERS:,} users of 10 organizations: "
        f"{first['rows']:,.0f} rows by Postgres' own count; the C program writes as many over as many users"]
    return found
