"""Ends what a killed benchmark leaves: guard.py FOLDER. Started by harness.py, which tells it what runs.

Lines of `+pid` and `-pid` come in; each pid leads a process group. When the input ends with groups still there, the
benchmark is dead: they are killed, and its data goes.
"""

import contextlib
import os
import shutil
import signal
import sys

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
shutil.rmtree(sys.argv[1], ignore_errors=True)
