from redis import Redis
from rq import Queue

from jobs import REDIS_URL, identify

queue = Queue("default", connection=Redis.from_url(REDIS_URL))


def enqueue_many(jobs):
    queue.enqueue_many([Queue.prepare_data(identify, (job,)) for job in jobs])
