"""A real service as a neighbour of the one under test, in this process, with the faults of a network between them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.errors.problems import Problem, Unavailable

Question = TypeVar("Question", bound=BaseModel)


@dataclass(frozen=True)
class Call:
    """A request to the neighbour; its path is without `/internal`."""

    path: str
    content: bytes


def answer_of(document: BaseModel | Problem) -> Response:
    """The answer with this document. A model has validated it: what the contract does not allow, no test can give."""
    if isinstance(document, Problem):
        return Response(document.body(), document.code, media_type="application/problem+json")
    return Response(document.model_dump_json(), media_type="application/json")


class FaultyNeighbour:
    """An ASGI app in front of `app`, for `Connections`, `serving` or httpx, whose `ASGITransport` knows no deadlines.
    It records every call in `requests`, counts it in `calls` by its path, and passes it on. These faults leave the
    paths of `spared` alone:

    - while `may_answer` is cleared, calls wait before they are passed on;
    - while `away`, and for the next `refusals` calls, the answer is 503;
    - for the next `lost_answers` calls, the call is done and the connection breaks.

    `on_call` sees each call first, the spared ones too: it may wait, raise a `ConnectionError`, or give the answer.
    """

    def __init__(self, app: ASGIApp, *, spared: frozenset[str] = frozenset()) -> None:
        self.app, self.spared = app, spared
        self.calls: Counter[str] = Counter()
        self.requests: list[Call] = []
        self.on_call: Callable[[Call], Awaitable[Response | None]] | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.away, self.refusals, self.lost_answers = False, 0, 0

    def received(self, path: str, kind: type[Question]) -> list[Question]:
        """The questions asked at this path so far."""
        return [kind.model_validate_json(call.content) for call in self.requests if call.path == path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = Call(scope["path"].removeprefix("/internal"), await _content(receive))
        self.calls[call.path] += 1
        self.requests.append(call)
        try:
            given = await self._fault(call)
            if given is not None:
                await given(scope, receive, send)
            elif self.lost_answers and call.path not in self.spared:
                self.lost_answers -= 1
                await self.app(scope, _again(call.content), _into_the_void)
                raise ConnectionResetError("the answer was lost")
            else:
                await self.app(scope, _again(call.content), send)
        except ConnectionError:
            # A server closes the connection of an app that fails after it has begun to answer.
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
            raise

    async def _fault(self, call: Call) -> Response | None:
        """The answer in place of the service's, if there is one."""
        if self.on_call is not None and (given := await self.on_call(call)) is not None:
            return given
        if call.path in self.spared:
            return None
        await self.may_answer.wait()
        if self.away:
            return answer_of(Unavailable())
        if self.refusals:
            self.refusals -= 1
            return answer_of(Unavailable())
        return None


@dataclass(frozen=True)
class Connections:
    """Stands in for `shared.rpc.client` of a service: calls reach the apps at these host names without a socket, and
    nobody listens at any other address.
    """

    apps: Mapping[str, ASGIApp]

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator["Connections"]:
        yield self

    async def post(self, url: str, *, content: bytes, headers: Mapping[str, str], timeout: float) -> "_Answer":
        address = urlsplit(url)
        if address.netloc not in self.apps:
            raise ConnectionRefusedError(f"nobody listens at {address.netloc}")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": address.path, "raw_path": address.path.encode(), "root_path": "", "query_string": b"",
            "headers": [(b"host", address.netloc.encode()), (b"content-length", str(len(content)).encode()),
                        *((name.lower().encode(), value.encode()) for name, value in headers.items())],
            "client": ("127.0.0.1", 1), "server": (address.netloc, 80), "state": {},
        }  # fmt: skip
        answer = _Answer()
        async with asyncio.timeout(timeout):
            await self.apps[address.netloc](scope, _again(content), answer.send)
        return answer


class _Answer:
    """A response of an app, once it has sent it."""

    status_code, content = 0, b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status_code = message["status"]
        else:
            self.content += message.get("body", b"")


async def _content(receive: Receive) -> bytes:
    content, more = b"", True
    while more:
        message = await receive()
        content += message.get("body", b"")
        more = message.get("more_body", False)
    return content


def _again(content: bytes) -> Receive:
    """Receives a body that was read before."""
    messages = iter([{"type": "http.request", "body": content, "more_body": False}])

    async def receive() -> Message:
        if (message := next(messages, None)) is None:
            await asyncio.Event().wait()  # no client of a test hangs up before it has its answer
        assert message is not None
        return message

    return receive


async def _into_the_void(message: Message) -> None:
    pass
