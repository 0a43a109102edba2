"""Streams as the libraries' guides describe them: sse-starlette with a queue per client, and WebSockets on uvicorn.

Tuned: a frame is encoded once and sent in one pass over all clients.
"""

import asyncio
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
from sse_starlette import EventSourceResponse

from bench.baselines.service import service

WAITING_MAX = 100


class Broadcaster:
    """Who listens, by queue or by WebSocket."""

    def __init__(self) -> None:
        self.queues: set[asyncio.Queue[bytes]] = set()
        self.sockets: set[WebSocket] = set()

    async def frames(self) -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes] = asyncio.Queue(WAITING_MAX)
        self.queues.add(queue)
        try:
            yield b"retry: 2000\n\n"
            while True:
                yield await queue.get()
        finally:
            self.queues.discard(queue)

    async def stream(self, socket: WebSocket) -> None:
        await socket.accept()
        self.sockets.add(socket)
        try:
            while True:
                await socket.receive_text()
        except WebSocketDisconnect:
            self.sockets.discard(socket)

    async def publish(self, data: bytes) -> None:
        frame = b"event: line\ndata: %b\n\n" % data
        for queue in self.queues:
            queue.put_nowait(frame)
        for socket in list(self.sockets):
            await socket.send_bytes(data)


def create_app() -> FastAPI:
    """`GET /sse`, `/websocket`, and `POST /publish` which publishes to both."""
    app, everyone = service(), Broadcaster()

    @app.get("/sse")
    async def sse() -> EventSourceResponse:
        return EventSourceResponse(everyone.frames())

    @app.websocket("/websocket")
    async def websocket(socket: WebSocket) -> None:
        await everyone.stream(socket)

    @app.post("/publish")
    async def publish(request: Request) -> dict[str, int]:
        await everyone.publish(await request.body())
        return {"listeners": len(everyone.queues) + len(everyone.sockets)}

    return app
