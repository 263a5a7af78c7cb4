"""One identify with starlette: parse, check the fields, XADD, answer."""

import json
import os

import redis.asyncio
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

client = redis.asyncio.Redis(unix_socket_path=os.environ["REDIS_SOCKET"])


def is_text(value, longest):
    return isinstance(value, str) and 0 < len(value) <= longest


async def identify(request):
    try:
        write = json.loads(await request.body())
        good = is_text(write["appUserId"], 255) and is_text(write["bundleId"], 255) \
            and isinstance(write.get("attributes", {}), dict)
    except (ValueError, KeyError, TypeError, AttributeError):
        good = False
    if not good:
        return JSONResponse({"ok": False}, 400)
    entry = await client.xadd("peer", {"d": json.dumps(write)})
    return JSONResponse({"ok": True, "id": entry.decode()})


app = Starlette(routes=[Route("/api/sdk/v1/identify", identify, methods=["POST"])])
