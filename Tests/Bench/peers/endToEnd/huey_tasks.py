from huey import RedisHuey

from jobs import REDIS_URL, identify

huey = RedisHuey("peers", url=REDIS_URL)


@huey.task()
def identify_task(job):
    identify(job)


def enqueue(job):
    identify_task(job)
