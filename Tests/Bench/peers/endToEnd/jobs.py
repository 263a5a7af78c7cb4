"""The job that every peer does: an identify of about 390 bytes, one upsert. REDIS_URL and PG_DSN in the environment.

The column `hits` counts the jobs of a row, so that the one who measures sees how many are done."""

import json
import os
import threading

import psycopg

REDIS_URL = os.environ["REDIS_URL"]
ASSIGNMENTS = """attributes = c.attributes || excluded.attributes, platform = excluded.platform,
    os_version = excluded.os_version, device_model = excluded.device_model, locale = excluded.locale,
    last_seen = excluded.last_seen, hits = c.hits + excluded.hits"""
COLUMNS = "org, app_user_id, attributes, platform, os_version, device_model, locale, last_seen, hits"
ONE = f"""INSERT INTO customers AS c ({COLUMNS})
    VALUES (%s, %s, %s::jsonb, %s, %s, %s, %s, now(), 1)
    ON CONFLICT (org, app_user_id) DO UPDATE SET {ASSIGNMENTS}"""
MANY = f"""INSERT INTO customers AS c ({COLUMNS})
    SELECT o, u, a, p, v, d, l, now(), n FROM unnest(
        %s::text[], %s::text[], %s::jsonb[], %s::text[], %s::text[], %s::text[], %s::text[], %s::int[]
    ) AS t(o, u, a, p, v, d, l, n)
    ON CONFLICT (org, app_user_id) DO UPDATE SET {ASSIGNMENTS}"""
USERS = 10_000


def make_job(number):
    user = number * 7919 % USERS
    return {
        "jobId": number, "org": f"org_{user % 10:02d}_4f9c2a71d8",
        "appUserId": f"$anon:{user:06d}c0ffee8f14e45fceea167a5a36", "platform": "ios" if user & 1 else "android",
        "osVersion": "17.4.1", "deviceModel": "iPhone15,3", "locale": "en_US",
        "attributes": {
            "email": f"user{user}.longer.name@example.com", "plan": f"premium_yearly_{number % 7}",
            "utm_source": "spring_campaign_newsletter_2026_variant_b_second_wave_returning_users"}}


_local = threading.local()


def connection():
    """One a thread; a forked process opens its own."""
    if getattr(_local, "process", None) != os.getpid():
        _local.connection = psycopg.connect(os.environ["PG_DSN"], autocommit=True)
        _local.process = os.getpid()
    return _local.connection


def columns(job, attributes):
    return (job["org"], job["appUserId"], json.dumps(attributes), job["platform"], job["osVersion"], job["deviceModel"],
            job["locale"])


def identify(job):
    connection().execute(ONE, columns(job, job["attributes"]))


def identify_batch(jobs):
    """One statement; jobs of one user are merged before."""
    merged = {}
    for job in jobs:
        key = (job["org"], job["appUserId"])
        known = merged.get(key)
        merged[key] = (job, {**known[1], **job["attributes"]}, known[2] + 1) if known else (job, job["attributes"], 1)
    ordered = [merged[key] for key in sorted(merged)]
    rows = [columns(job, attributes) + (hits,) for job, attributes, hits in ordered]
    connection().execute(MANY, [list(column) for column in zip(*rows)])
