"""Sends the client's requests: credentials, time limits, retries, streams.

A request is sent again only if sending it twice is like sending it once, and only after an answer that says when
(`Retry-After`) or after none at all. Cookies are neither kept nor sent: one client may serve many fans.

`Problem`: the one exception of the client, for every answer that is not a success and for none at all.
"""

import asyncio
import random
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import cached_property, lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, NamedTuple, Protocol, Self
from urllib.parse import quote, urlencode

import httpx
import orjson

from onsale.server_sent_events import Message, messages
from shared.routes import at_suite

NO_ANSWER, TOO_MANY = 0, 429


class Answer(Protocol):
    """An HTTP response as this client needs it; names of headers in any case, or in lower case."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def content(self) -> bytes: ...


class Problem(Exception):
    """A problem document (RFC 9457): its `type` says which problem, its `detail` is a sentence for a person.

    `status` is 0 when no answer came: whether the request was executed is then unknown. `retry_after_s` is set where
    the answer says when to come again. `members` is the whole document: some problems have members of their own.
    `operation` is the name of the client's method.
    """

    operation = ""

    def __init__(
        self, status: int, document: Mapping[str, Any] | None = None, *, retry_after_s: float | None = None
    ) -> None:
        self.status, self.members, self.retry_after_s = status, dict(document or {}), retry_after_s
        self.type = str(self.members.get("type", "about:blank"))
        self.title = str(self.members.get("title", f"HTTP {status}" if status else "No answer came."))
        self.detail = str(self.members.get("detail", self.title))
        super().__init__(self.detail)

    @property
    def slug(self) -> str:
        """The end of the type: `seats-taken`."""
        return self.type.rpartition("/")[2]

    @property
    def is_refusal(self) -> bool:
        """Whether the suite said no for good: asked again it would say so again."""
        return 400 <= self.status < 500 and self.status != TOO_MANY

    @classmethod
    def of(cls, answer: Answer) -> "Problem":
        """The problem of an answer. A balancer may answer anything: then only the status is known."""
        return cls(answer.status_code, json_object(answer.content), retry_after_s=_seconds(answer.headers))


def json_object(content: bytes) -> dict[str, Any]:
    """The object that is written there; empty for anything else."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Of `Retry-After`; a date is not read, as neither the suite nor its balancers send one."""
    said = headers.get("retry-after", "")
    return float(said) if said.isdecimal() else None


TIMEOUT_S, ATTEMPTS_MAX, RETRY_AFTER_MAX_S = 20.0, 5, 60.0
BUSY = {409, 429, 503}
STREAM_SILENT_MAX_S, RECONNECT_S = 25.0, 1.0  # the suite ends every silence of a stream after at most 18 s


class Request(NamedTuple):
    """One request. `operation` is the name of the client's method; `repeatable` that it may be sent twice."""

    operation: str
    method: str
    path: str
    headers: dict[str, str]
    content: bytes
    repeatable: bool


class Update(NamedTuple):
    """One message of a stream: what it is about (`line`, `sections`, `seats`, `order` …), and its document."""

    kind: str
    data: dict[str, Any]


class Connection:
    """A suite at one address. `token` is the credential of requests that are given none of their own."""

    def __init__(
        self, url: str, *, token: str | None = None, http: httpx.AsyncClient | None = None,
        timeout_s: float = TIMEOUT_S, attempts_max: int = ATTEMPTS_MAX,
    ) -> None:  # fmt: skip
        self._url, self._token, self._timeout_s, self._attempts_max = url.rstrip("/"), token, timeout_s, attempts_max
        self._given = http
        self._rng = random.Random()  # noqa: S311 - spreads retries

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        return self._given or httpx.AsyncClient(cookies=CookieJar(DefaultCookiePolicy([], [])))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections, unless they belong to the `http` that was passed."""
        if self._given is None and "_http" in vars(self):
            await self._http.aclose()

    async def send(self, request: Request) -> Answer:
        """Sends it once; the answer, whatever its status. Raises `ConnectionError` or `TimeoutError`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._http.request(
                    request.method, at_suite(self._url, request.path), headers=request.headers,
                    content=request.content, timeout=self._timeout_s,
                )  # fmt: skip
        except httpx.TransportError as lost:
            raise ConnectionError(str(lost)) from lost

    async def answer(self, request: Request) -> Answer:
        """The successful answer; raises `Problem` otherwise."""
        attempts = self._attempts_max if request.repeatable else 1
        for attempt in range(1, attempts + 1):
            problem = await self._attempt(request)
            if not isinstance(problem, Problem):
                return problem
            pause_s = self._pause_s(problem, attempt) if attempt < attempts else None
            if pause_s is None:
                raise problem
            await asyncio.sleep(pause_s)
        raise AssertionError("unreachable")

    async def _attempt(self, request: Request) -> Answer | Problem:
        try:
            answer = await self.send(request)
        except (ConnectionError, TimeoutError) as lost:
            problem = Problem(NO_ANSWER)
            problem.__cause__ = lost
        else:
            if answer.status_code < 400:
                return answer
            problem = Problem.of(answer)
        problem.operation = request.operation
        return problem

    def _pause_s(self, problem: Problem, attempt: int) -> float | None:
        """Seconds until the request is sent again, None if it is not."""
        if problem.status == NO_ANSWER:
            return self._rng.uniform(0.1, 0.25) * 2.0**attempt
        if problem.status not in BUSY or problem.retry_after_s is None:
            return None
        wait_s = min(problem.retry_after_s, RETRY_AFTER_MAX_S)
        return wait_s * self._rng.uniform(1.0, 2.0) * 1.5 ** (attempt - 1)

    async def content(
        self, operation: str, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None,
        token: str | None = None, headers: Mapping[str, str | None] | None = None, repeatable: bool = True,
    ) -> bytes:  # fmt: skip
        """The body of the answer. What is None is left out; bytes are sent as they are, anything else as JSON."""
        sent, content = self._headers(token, headers), body if isinstance(body, bytes) else b""
        if not (body is None or isinstance(body, bytes)):
            sent["content-type"], content = "application/json", orjson.dumps(body)
        address = _address(path, query)
        request = Request(operation, method, address, headers=sent, content=content, repeatable=repeatable)
        return (await self.answer(request)).content

    async def document(self, operation: str, method: str, path: str, **more: Any) -> Any:
        """The JSON document of the answer, None for an empty one. Raises `Problem`."""
        content = await self.content(operation, method, path, **more)
        return orjson.loads(content) if content else None

    async def updates(
        self, operation: str, path: str, *, query: Mapping[str, Any] | None = None, token: str | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> AsyncGenerator[Update]:  # fmt: skip
        """Each message of a stream, which is opened again, where it stopped, as often as it ends. Close it with
        `contextlib.aclosing`, or read it in a task that ends. Raises `Problem` if the stream is refused.
        """
        sent, pause_s = self._headers(token, headers) | {"accept": "text/event-stream"}, RECONNECT_S
        while True:
            try:
                async with aclosing(self._stream(_address(path, query), sent)) as stream:
                    async for message in stream:
                        pause_s = message.retry_s or RECONNECT_S
                        if message.id:
                            sent["last-event-id"] = message.id
                        yield Update(message.event, orjson.loads(message.data))
            except Problem as refused:
                if refused.status != NO_ANSWER and (refused.status not in BUSY or refused.retry_after_s is None):
                    raise
                pause_s = refused.retry_after_s or RECONNECT_S
            await asyncio.sleep(pause_s * self._rng.uniform(1.0, 2.0))

    async def _stream(self, address: str, headers: dict[str, str]) -> AsyncGenerator[Message]:
        timeout = httpx.Timeout(self._timeout_s, read=STREAM_SILENT_MAX_S)
        url = at_suite(self._url, address)
        try:
            async with self._http.stream("GET", url, headers=headers, timeout=timeout) as response:
                if response.is_error:
                    await response.aread()
                    raise Problem.of(response)
                async for message in messages(response.aiter_lines()):
                    yield message
        except httpx.TransportError as lost:
            raise Problem(NO_ANSWER) from lost

    def _headers(self, token: str | None, headers: Mapping[str, str | None] | None) -> dict[str, str]:
        bearer = token or self._token
        sent = {"authorization": f"Bearer {bearer}"} if bearer else {}
        return sent | {name: value for name, value in (headers or {}).items() if value is not None}


@lru_cache(maxsize=1024)
def segment(value: str | int) -> str:
    """A value as one part of a path."""
    return quote(str(value), safe="")


def new_key() -> str:
    """An idempotency key of one request, kept across its retries."""
    return str(uuid.uuid4())


def _address(path: str, query: Mapping[str, Any] | None) -> str:
    given = {name: value for name, value in (query or {}).items() if value is not None}
    sent = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}
    return f"{path}?{urlencode(sent, doseq=True)}" if sent else path
