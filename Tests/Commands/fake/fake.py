#!/usr/bin/env python3
"""Stands in for Ratchet's programs when make run itself is tested (RATCHET_BIN_DIR=Tests/Commands/fake).

The other names in this folder are links to it. FAKE_DEAF=<name>: ignores SIGTERM. FAKE_UNREADY=<name>: never ready.
FAKE_BROKEN=<name>: exits at once.
"""

import http.server
import json
import os
import signal
import sys
import threading

name = os.path.basename(sys.argv[0]).removeprefix("ratchet-")
run = os.environ["RATCHET_RUN_DIR"]
state_file = os.path.join(run, "..", "fake.json")


def cli(arguments):
    state = {"migrated": False, "orgs": [], "apps": []}
    if os.path.exists(state_file):
        with open(state_file) as file:
            state = json.load(file)
    if arguments == ["migrate"]:
        state["migrated"] = True
    elif arguments[1] == "list" and arguments[-1] == "--json":
        print(json.dumps(state[arguments[0]]))
    elif arguments[0] in ("orgs", "apps") and arguments[1] in ("create", "connect"):
        if not state["migrated"] or arguments[2] in [one["slug"] for one in state[arguments[0]]]:
            print(f"{arguments[2]} exists, or nothing is migrated", file=sys.stderr)
            return 1
        state[arguments[0]].append({"slug": arguments[2]})
    else:
        print(f"unknown arguments {arguments}", file=sys.stderr)
        return 2
    with open(state_file, "w") as file:
        json.dump(state, file)
    return 0


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        ready = os.environ.get("FAKE_UNREADY") != name
        body = json.dumps({"ok": ready, "process": name}).encode()
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, format, *arguments):
        pass


def serve(port):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def process():
    if os.environ.get("FAKE_BROKEN") == name:
        print("broken on purpose", flush=True)
        return 1
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    if name == "ingress":
        serve(int(os.environ["RATCHET_INGRESS_PORT"]))
    with open(os.path.join(run, name + ".ops.new"), "w") as file:
        file.write(f"127.0.0.1:{serve(0)}\n")
    os.replace(file.name, os.path.join(run, name + ".ops"))
    while True:
        signal.sigwait([signal.SIGTERM])
        with open(os.path.join(run, "..", "stops"), "a") as file:
            file.write(name + "\n")
        if os.environ.get("FAKE_DEAF") != name:
            return 0


sys.exit(cli(sys.argv[1:]) if name == "ratchet" else process())
