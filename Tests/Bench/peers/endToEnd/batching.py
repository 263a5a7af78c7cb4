"""The plain batching consumer: reads a stream by 256, one upsert a batch, then acknowledges and deletes. CONSUMER names
it; what its own name left unacknowledged it takes first. No retries, no dead letters, no lanes, no limits."""

import json
import os

import redis

from jobs import REDIS_URL, identify_batch

client = redis.Redis.from_url(REDIS_URL)


def enqueue_many(jobs):
    pipeline = client.pipeline(transaction=False)
    for job in jobs:
        pipeline.xadd("identify", {"j": json.dumps(job)})
    pipeline.execute()


def main():
    try:
        client.xgroup_create("identify", "g", "0", mkstream=True)
    except redis.ResponseError:
        pass  # The other consumer has made it.
    cursor = "0"
    while True:
        found = client.xreadgroup("g", os.environ["CONSUMER"], {"identify": cursor}, count=256, block=1000)
        messages = found[0][1] if found else []
        if not messages:
            cursor = ">"
            continue
        identify_batch([json.loads(fields[b"j"]) for _, fields in messages])
        ids = [one for one, _ in messages]
        pipeline = client.pipeline(transaction=False)
        pipeline.xack("identify", "g", *ids)
        pipeline.xdel("identify", *ids)
        pipeline.execute()


if __name__ == "__main__":
    main()
