from celery import Celery

from jobs import REDIS_URL, identify

app = Celery("peers", broker=REDIS_URL)
app.conf.task_ignore_result = True
# With all it may hold in hand it looks for more only once a second: with 16 a thread two workers did 128/s and less.
app.conf.worker_prefetch_multiplier = 64
app.conf.broker_connection_retry_on_startup = True


@app.task(name="identify")
def identify_task(job):
    identify(job)


def enqueue(job):
    identify_task.delay(job)
