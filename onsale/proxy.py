"""Passes a request on to a service in another process, and its answer back as it comes: streams stay streams."""

import asyncio
from collections.abc import AsyncIterator

import httpx
from starlette.types import Receive, Scope, Send

from shared import problems

HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)

SAFE = frozenset({"GET", "HEAD"})


class Proxy:
    """An ASGI app that is another one, elsewhere."""

    def __init__(self, client: httpx.AsyncClient, base_url: str) -> None:
        self._client, self._base_url = client, base_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        query = scope["query_string"].decode("latin-1")
        url = f"{self._base_url}{path}" + (f"?{query}" if query else "")
        headers = [(name, value) for name, value in scope["headers"] if name not in HOP_BY_HOP]
        if peer := scope.get("client"):
            headers.append((b"x-forwarded-for", peer[0].encode()))
        request = self._client.build_request(scope["method"], url, headers=headers, content=_body(receive))
        response = await self._sent(request)
        if response is None and scope["method"] in SAFE:  # one of several behind this port may just have ended
            response = await self._sent(self._client.build_request(scope["method"], url, headers=headers))
        if response is None:
            await self._away(send)
            return
        try:
            await self._pass_back(response, receive, send)
        finally:
            await response.aclose()

    async def _sent(self, request: httpx.Request) -> httpx.Response | None:
        try:
            return await self._client.send(request, stream=True)
        except httpx.TransportError:
            return None

    @staticmethod
    async def _pass_back(response: httpx.Response, receive: Receive, send: Send) -> None:
        """Copies the answer until it ends or the browser leaves."""
        headers = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in HOP_BY_HOP]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})

        async def copy() -> None:
            async for chunk in response.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        async def left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        tasks = {asyncio.create_task(copy()), asyncio.create_task(left())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @staticmethod
    async def _away(send: Send) -> None:
        problem = problems.Unavailable()
        head = {"content-type": problems.MEDIA_TYPE, **problem.headers()}
        headers = [(name.encode(), value.encode()) for name, value in head.items()]
        await send({"type": "http.response.start", "status": problem.code, "headers": headers})
        await send({"type": "http.response.body", "body": problem.body()})


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        more = message.get("more_body", False)
        yield message.get("body", b"")
