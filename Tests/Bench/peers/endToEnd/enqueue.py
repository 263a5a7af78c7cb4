"""enqueue.py MODULE N: hands N jobs to a peer by its own call, many at a time where it has one for that."""

import importlib
import sys

from jobs import make_job

module = importlib.import_module(sys.argv[1])
count = int(sys.argv[2])
if hasattr(module, "enqueue_many"):
    for start in range(0, count, 256):
        module.enqueue_many([make_job(number) for number in range(start, min(start + 256, count))])
else:
    for number in range(count):
        module.enqueue(make_job(number))
