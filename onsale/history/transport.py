"""A transport of httpx that records every answer in a history before the client gets it."""

import httpx

from onsale.history.exchange import Exchange
from onsale.history.log import History, now_ms

STREAM = "text/event-stream"


class RecordingTransport(httpx.AsyncBaseTransport):
    """Around any other transport; its client notices nothing, except that answers arrive whole. Streams pass by."""

    def __init__(self, inner: httpx.AsyncBaseTransport, history: History) -> None:
        self._inner, self._history = inner, history

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        sent_ms, content = now_ms(), await request.aread()
        address, answer = request.url, httpx.Response(0)  # the address before a balancer changes it
        try:
            response = await self._inner.handle_async_request(request)
            if response.headers.get("content-type", "").startswith(STREAM):
                return response
            answer = await _whole(response)
        finally:
            self._history.answered(Exchange(
                request.method, address.path, address.query.decode(), headers={**request.headers}, request=content,
                status=answer.status_code, body=answer.content, sent_ms=sent_ms, at_ms=now_ms(),
            ))  # fmt: skip
        return answer

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _whole(response: httpx.Response) -> httpx.Response:
    """The response with its body."""
    try:
        raw = b"".join([chunk async for chunk in response.stream])  # type: ignore[union-attr]
    finally:
        await response.aclose()
    return httpx.Response(response.status_code, headers=response.headers, content=raw, extensions=response.extensions)
