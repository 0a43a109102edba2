"""The upper limit of the server: an ASGI app that answers the same bytes to every request."""

import base64
import os
from typing import Any

import orjson


def create_app() -> Any:
    """`BENCH_ANSWER` is the base64 of a JSON list: the header fields as pairs, and the body."""
    fields, text = orjson.loads(base64.b64decode(os.environ["BENCH_ANSWER"]))
    headers = [(name.encode(), value.encode()) for name, value in fields]
    start = {"type": "http.response.start", "status": 200, "headers": headers}
    body = {"type": "http.response.body", "body": text.encode()}

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await send(start)
        await send(body)

    return app
