import dramatiq
from dramatiq.brokers.redis import RedisBroker

from jobs import REDIS_URL, identify

dramatiq.set_broker(RedisBroker(url=REDIS_URL))


@dramatiq.actor
def identify_task(job):
    identify(job)


def enqueue(job):
    identify_task.send(job)
