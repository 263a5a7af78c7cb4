#!/usr/bin/env python3
"""`make bench`: what Ratchet costs, beside other software that does the same on the same machine in the same minutes.

Installs what is missing (Debian packages, and PyPI's in a virtual environment), builds, measures section by section in
interleaved rounds, prints a table, and merges the figures into .ratchet/bench/latest.json. Nothing here judges: the
figures are for reading. docs/performance.md explains them.
"""

import argparse
import contextlib
import datetime
import importlib
import json
import os
import sys
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import harness  # noqa: E402

SECTIONS = ["ingress", "jws", "attest", "writer", "endToEnd", "queue", "sweep", "growth"]
LATEST = os.path.join(harness.FOLDER, "latest.json")


def written_sections():
    """The names of the sections there are, in the order in which they run."""
    return [name for name in SECTIONS if os.path.exists(os.path.join(harness.HERE, "sections", name + ".py"))]


def arguments():
    parser = argparse.ArgumentParser(
        prog="bench.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit codes: 0 measured, 1 a section failed (the others stand), 2 wrong arguments, 130 stopped.")
    parser.add_argument("--quick", action="store_true", help="one peer a section, one round, less of everything")
    parser.add_argument("--only", metavar="SECTIONS",
                        help="these, with commas between: " + ",".join(written_sections()))
    parser.add_argument("--rounds", type=int, help="rounds of each section (3; 1 with --quick)")
    parser.add_argument("--json", action="store_true", help="print the figures of this run as JSON, not as a table")
    options = parser.parse_args()
    options.sections = options.only.split(",") if options.only else written_sections()
    unknown = [name for name in options.sections if name not in written_sections()]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(written_sections())}")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    return options


def measure(bench, name):
    """The document of one section. A section that fails says why, and the next is measured."""
    bench.progress(f"section {name}")
    started, commit = len(bench.processes), harness.commit()
    try:
        found = importlib.import_module(f"sections.{name}").measure(bench).document()
    except harness.Fault as fault:
        found = {"failed": str(fault)}
    except Exception:
        found = {"failed": traceback.format_exc()}
    finally:
        bench.stop_since(started)
    if "failed" in found:
        bench.progress(f"{name} failed: {found['failed']}")
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return found | {"commit": commit, "at": now, "quick": bench.quick}


def keep(documents):
    """Merges the sections of this run into what is known of the others, and answers all."""
    latest = {}
    with contextlib.suppress(OSError, ValueError), open(LATEST, encoding="utf-8") as file:
        latest = json.load(file)
    latest.update(documents)
    latest.update(machine=harness.machine(), commit=harness.commit())
    with open(LATEST + ".new", "w", encoding="utf-8") as file:
        json.dump(latest, file, indent=2)
        file.write("\n")
    os.replace(LATEST + ".new", LATEST)


def number(value):
    if not isinstance(value, (int, float)):
        return "-" if value is None else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def table(documents):
    """The sections for reading: the figure, what is beside it, and how far the rounds lay apart."""
    lines = []
    for name, found in documents.items():
        if "failed" in found:
            lines.append(f"{name}: failed: {found['failed'].strip().splitlines()[-1]}\n")
            continue
        head = f"{name}  [{found['unit']}; median of {found['rounds']}; {found['pinned']}]"
        ratio = "" if found["ratio"] is None else \
            f"   ratio {number(found['ratio'])} ({number(found['ratioMin'])} to {number(found['ratioMax'])})"
        lines.append(head)
        spread = f"({number(found['min'])} to {number(found['max'])})"
        lines.append(f"  {'ours':<44} {number(found['ours']):>12}   {spread}{ratio}")
        lines += [f"  {'beside: ' + other:<44} {number(value):>12}" for other, value in found["beside"].items()]
        for other, value in found["variants"].items():
            if isinstance(value, dict) and "median" in value:
                text = f"{number(value['median']):>12}   ({number(value['min'])} to {number(value['max'])})"
            elif isinstance(value, dict):
                text = "  ".join(f"{key} {number(one)}" for key, one in value.items())
            else:
                text = f"{number(value):>12}"
            lines.append(f"  {other:<44} {text}")
        lines += [f"  note: {note}" for note in found["notes"]] + [""]
    return "\n".join(lines)


def main():
    options = arguments()
    documents = {}
    try:
        with harness.Bench(quick=options.quick, rounds=options.rounds) as bench:
            bench.build()
            for name in options.sections:
                documents[name] = measure(bench, name)
                keep({name: documents[name]})
    except harness.Stopped as stopped:
        print(f"bench: stopped by {stopped}; nothing is left running", file=sys.stderr)
        return 130
    except harness.Fault as fault:
        print(f"bench: {fault}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({**documents, "machine": harness.machine(), "commit": harness.commit()}, indent=2))
    else:
        print(table(documents), end="")
    return 1 if any("failed" in found for found in documents.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
