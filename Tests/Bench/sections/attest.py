"""`attest`: App Attest objects to verified device keys on one core, beside the check of one P-384 signature and beside
pyattest. All judge the same objects of devices made on the spot; all rates are of processor time."""

import json
import os

import harness
from sections.jws import openssl_rate

PYATTEST = "pyattest==1.0.5"


def measure(bench):
    folder = bench.new_folder("attest")
    seconds = "1" if bench.quick else "3"
    bench.bench_main("attest-samples", "--folder", folder, core=None)
    unknown = []

    def ours():
        found = bench.bench_main("attest", "--folder", folder, "--seconds", seconds)
        unknown.append(found["unknownPerSecond"])
        return found["knownPerSecond"]

    things = {"ours": ours, "openssl speed ecdsap384": lambda: openssl_rate(bench, "ecdsap384", seconds)}
    missing = []
    # One peer is enough for a quick look.
    python = None if bench.quick else bench.python_peer(PYATTEST)
    if python:
        things["pyattest"] = lambda: json.loads(bench.run(
            "pyattest", [python, os.path.join(harness.HERE, "peers", "trust", "pyattest_rate.py"), folder, seconds],
            core=0))["perSecond"]
    elif not bench.quick:
        missing.append("pyattest")
    values = bench.interleaved(bench.rounds, things)
    variants = {"ours, every intermediate new": harness.summary(unknown)}
    if python:
        variants["x pyattest"] = harness.summary(harness.ratios(values["ours"], values["pyattest"]))
    return harness.section(
        values, "ours", unit="attestations judged per CPU second, intermediate known",
        ratio_to="openssl speed ecdsap384", pinned="one at a time on core 0", variants=variants, missing=missing,
        notes=["64 devices in turn"])
