"""Exchanges of the real ratchet-sweeper with a local server in Apple's place, 256 at once, beside libcurl's multi
interface making the same requests of the same server; and what a claim takes however many tokens are pending."""

import json
import os
import re
import time

import harness

AT_ONCE = 256
# As many as the sweeper claims at once (Sweep.claimSize).
MOST_CLAIMED = 4 * AT_ONCE
CLAIMED = (128, 500, MOST_CLAIMED)
CLAIMS = 13
# What the server waits with each answer, so that so many really are in flight. It allows for 51,200 exchanges/s.
ANSWER_MILLISECONDS = 5


def measure(bench):
    tokens, later = (10_000, 50_000) if bench.quick else (60_000, 1_000_000)
    pending = [10_000, 100_000] if bench.quick else [10_000, 100_000, 1_000_000]
    postgres = bench.postgres(core=1)
    apple_program = bench.compile_c("peers/c/apple.c")
    asks_program = bench.compile_c("peers/c/asks.c", ["libcurl"])
    port = bench.free_port()
    url = f"http://127.0.0.1:{port}/api/v1/"
    apple = bench.start("apple", [apple_program, str(port), str(ANSWER_MILLISECONDS)], core=1)
    # Plain http is for development alone.
    system = bench.system(bench.redis(None), postgres, RATCHET_MODE="development", RATCHET_ADSERVICES_URL=url,
                          RATCHET_ADSERVICES_CONCURRENCY=AT_ONCE)
    database = os.path.basename(system.folder)
    target = ["--postgres", system.env["RATCHET_PG"], "--schema", "ratchet"]
    costs, busy, peaks = {}, {}, []

    def note(name, own, server, database, count, seconds):
        """Microseconds of CPU an exchange, by process, and the server's share of its core."""
        costs.setdefault(name, []).append({
            "itself": 1e6 * own / count, "Postgres": 1e6 * database / count, "server": 1e6 * server / count})
        busy.setdefault(name, []).append(server / seconds)

    def ended(process):
        return sum(value for name, value in system.metrics(process).items()
                   if name.startswith("ratchet_adservices_outcomes_total"))

    def ours():
        bench.bench_main("tokens", *target, "--secret", system.env["RATCHET_SECRET"], "--due", str(tokens), "--later",
                         str(later), core=None)
        postgres.sql("checkpoint")
        process = system.start("sweeper", core=0, ready=False)
        bench.wait_until(lambda: ended(process) > 0, 30, "the first exchange", process)
        first, began = ended(process), time.monotonic()
        own, server, rest = process.cpu_seconds(), apple.cpu_seconds(), postgres.cpu_seconds()
        # Seldom: each look costs the sweeper some of what is measured.
        deadline = began + 300
        while ended(process) < tokens:
            if time.monotonic() > deadline or not process.running():
                raise harness.Fault(f"the sweep did not end: {process.tail()}")
            time.sleep(0.1)
        seconds = time.monotonic() - began
        note("ours", process.cpu_seconds() - own, apple.cpu_seconds() - server, postgres.cpu_seconds() - rest,
             tokens - first, seconds)
        with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
            peaks.append(next(int(line.split()[1]) / 1e3 for line in status if line.startswith("VmHWM:")))
        process.stop()
        written = int(postgres.sql(
            "select count(*) from ratchet.adservices_tokens where state = 'resolved' and asks = 1", database))
        if written != tokens:
            raise harness.Fault(f"{written} of {tokens} tokens were resolved by one ask")
        return (tokens - first) / seconds

    def curl():
        server = apple.cpu_seconds()
        run = json.loads(bench.run("asks", [asks_program, url, str(4 * tokens), str(AT_ONCE)], core=0))
        note("curl multi in C", run["cpuSeconds"], apple.cpu_seconds() - server, 0, run["asks"], run["seconds"])
        return run["asks"] / run["seconds"]

    values = bench.interleaved(bench.rounds, {"ours": ours, "curl multi in C": curl})
    found = harness.section(
        values, "ours", "exchanges/s", "sweeper and curl core 0, server and Postgres core 1",
        ratio_to="curl multi in C")
    for name, runs in costs.items():
        found.variants[f"{name}: CPU us/exchange"] = {
            part: sorted(run[part] for run in runs)[len(runs) // 2] for part in runs[0]}
        found.variants[f"{name}: share of a core that the server was busy"] = harness.summary(busy[name])
    found.variants["ratio of CPU time, without Postgres"] = harness.summary(harness.ratios(
        [run["itself"] for run in costs["curl multi in C"]], [run["itself"] for run in costs["ours"]]))
    found.variants["greatest memory of the sweeper, MB"] = harness.summary(peaks)
    apple.stop()

    claims = {}
    for count in pending:
        bench.bench_main("tokens", *target, "--overdue", str(count), core=None)
        left = count
        for limit in CLAIMED:
            # One more, which is not counted.
            if limit * (CLAIMS + 1) > left:
                continue
            left -= limit * (CLAIMS + 1)
            title = f"claim of {limit:,}, {count:,} pending, ms"
            claims[title] = bench.bench_main("claim", *target, "--limit", str(limit), "--claims", str(CLAIMS),
                                              core=0)
            bench.progress(f"{title}: {claims[title]['median']:.1f}")
    found.variants.update(claims)
    found.notes = [f"{tokens:,} tokens of 384 bytes are due, {later:,} more are pending and not due; the server waits "
                   f"{ANSWER_MILLISECONDS} ms with each answer, so that {AT_ONCE} are in flight"]
    return found
