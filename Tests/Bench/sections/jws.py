"""`jws`: StoreKit's signed transactions to verified claims on one core, beside the signature check alone and beside
Apple's own library. All verify the same tokens of a chain made on the spot; all rates are of processor time."""

import json
import os
import re

import harness

APPLE = "app-store-server-library==3.1.2"


def openssl_rate(bench, algorithm, seconds):
    """Verifications a second of `openssl speed`, which counts user time."""
    output = bench.run("openssl", ["openssl", "speed", "-seconds", seconds, algorithm], core=0)
    # The last line: sign and verify times, then sign/s and verify/s.
    return float(re.split(r"\s+", output.strip().splitlines()[-1])[-1])


def measure(bench):
    folder = bench.new_folder("jws")
    seconds = "1" if bench.quick else "3"
    bench.bench_main("jws-samples", "--folder", folder, core=None)
    others = {"not cached": [], "repeated token": []}

    def ours():
        found = bench.bench_main("jws", "--folder", folder, "--seconds", seconds)
        others["not cached"].append(found["unknownPerSecond"])
        others["repeated token"].append(found["repeatedPerSecond"])
        return found["knownPerSecond"]

    things = {"ours": ours, "openssl speed ecdsap256": lambda: openssl_rate(bench, "ecdsap256", seconds)}
    missing = []
    # One peer is enough for a quick look.
    python = None if bench.quick else bench.python_peer(APPLE)
    if python:
        for name, mode in (("app-store-server-library", "plain"), ("app-store-server-library, cached", "cached")):
            things[name] = lambda mode=mode: json.loads(bench.run(
                "apple", [python, os.path.join(harness.HERE, "peers", "trust", "apple.py"), folder, mode, seconds],
                core=0))["perSecond"]
    elif not bench.quick:
        missing.append("app-store-server-library")
    values = bench.interleaved(bench.rounds, things)
    variants = {f"ours, {name}": harness.summary(one) for name, one in others.items()}
    for name in values:
        if name.startswith("app-store"):
            variants[f"x {name}"] = harness.summary(harness.ratios(values["ours"], values[name]))
            variants[f"repeated token, x {name}"] = harness.summary(
                harness.ratios(others["repeated token"], values[name]))
    return harness.section(
        values, "ours", unit="tokens verified per CPU second, chain cached", ratio_to="openssl speed ecdsap256",
        pinned="one at a time on core 0", variants=variants, missing=missing,
        notes=["1,000 tokens in turn; every signature is checked but for the repeated ones, which are remembered"])
