#!/usr/bin/env python3
"""What a machine of the measured kind carries, which part gives out first, and what 10 and 100 times its traffic takes.

Reads .ratchet/bench/latest.json, so it says only what `make bench` has measured here: the processor time of each part
for one write, multiplied. It knows nothing of disks, networks or other machines; docs/performance.md says what to think
of beside it. --json prints the figures for a program. Exit codes: 0 printed, 1 a section was not measured, 2 wrong
arguments.
"""

import argparse
import json
import math
import os
import sys

LATEST = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", ".ratchet", "bench", "latest.json")
# Of 100 writes so many are purchases with a signature: each is looked at once, stands in the queue twice, and touches
# three rows. Apps identify at each start and sell seldom; this is on the safe side.
PURCHASES = 5
ROWS_OF_A_PURCHASE = 3
# Of 1,000 writes so many bring a token for Apple: one for each new install.
TOKENS = 10
# A core that is busier than this makes calls wait.
BUSY = 0.6
FACTORS = (1, 10, 100)


def costs(latest):
    """Microseconds of each part for one write of the mixture."""
    def variant(section, *names):
        found = latest[section]["variants"]
        for name in names:
            found = found[name]
        return found

    passages = 1 + PURCHASES / 100
    rows = 1 + PURCHASES / 100 * (ROWS_OF_A_PURCHASE - 1)
    ingress = variant("ingress", "everysec, 64 connections")
    tokens = TOKENS / 1000
    sweep = variant("sweep", "ours: CPU us/exchange")
    return {
        "ingress": ingress["\u00b5s"],
        "Redis": ingress["redis \u00b5s"] + passages * variant("queue", "ours, batches of 16: settle", "redis \u00b5s")
        + (passages - 1) * variant("queue", "ours, batches of 16: accept", "redis \u00b5s"),
        "verifier": PURCHASES / 100 * 1e6 / latest["jws"]["ours"],
        "writer": rows * variant("writer", "ours: CPU us/row of the writer", "median"),
        "Postgres": rows * variant("writer", "ours: CPU us/row of its backend", "median") + tokens * sweep["Postgres"],
        "sweeper": tokens * sweep["itself"],
    }


def scale(latest):
    """One core of each part, and the cores of each for this machine's traffic and its multiples."""
    parts = costs(latest)
    machine = BUSY * latest["machine"]["cores"] * 1e6 / sum(parts.values())
    return {
        "microsecondsPerWrite": parts,
        "writesPerSecondOfOneCore": {name: BUSY * 1e6 / cost for name, cost in parts.items()},
        "machineWritesPerSecond": machine,
        "cores": {str(factor): {name: factor * machine * cost / 1e6 / BUSY for name, cost in parts.items()}
                  for factor in FACTORS},
    }


def table(found):
    cores = found["cores"]
    lines = [f"{'':<10} {'µs a write':>11} {'writes/s of a core':>19}"
             + "".join(f" {'cores at ' + str(factor) + 'x':>15}" for factor in FACTORS)]
    for name, cost in sorted(found["microsecondsPerWrite"].items(), key=lambda one: -one[1]):
        lines.append(f"{name:<10} {cost:>11.1f} {found['writesPerSecondOfOneCore'][name]:>19,.0f}"
                     + "".join(f" {math.ceil(cores[str(factor)][name] * 10) / 10:>15.1f}" for factor in FACTORS))
    lines.append(f"{'writes/s':<10} {'':>11} {'':>19}"
                 + "".join(f" {factor * found['machineWritesPerSecond']:>15,.0f}" for factor in FACTORS))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures for a program")
    options = parser.parse_args()
    try:
        with open(LATEST, encoding="utf-8") as file:
            found = scale(json.load(file))
    except (OSError, KeyError) as fault:
        sys.exit(f"scale: run make bench first; not measured yet: {fault}")
    print(json.dumps(found, indent=2) if options.json else table(found))


main()
