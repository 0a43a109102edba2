"""Calls of one service to another, with a deadline: as a function where it lives in this process, else by signed HTTP
to its internal listener.

A problem that the service answers is raised as the same class, and what it began it ends, whoever still waits for it.
"""

import asyncio
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol, TypeVar

import httpx
from opentelemetry.trace import SpanKind
from pydantic import BaseModel

from shared.errors.problems import BadCredential, Unavailable, from_document
from shared.http.http1 import HttpClient
from shared.runtime import tracing
from shared.runtime.tracing import sale_log
from shared.security.tokens import Keyring, b64, unb64

Answer = TypeVar("Answer", bound=BaseModel)
CONNECTIONS_MAX = 32
SERVICE_HEADER = "onsale-service"
SERVICE_SKEW_MAX_S = 30

OwnService = Callable[[str, BaseModel], Awaitable[BaseModel]]  # gets the path without `/internal` and the question

_here: dict[str, OwnService] = {}  # the services of this process that answer calls now, by name


@contextmanager
def answered_here(name: str, service: OwnService) -> Iterator[None]:
    """Inside this context the calls of this process to the service of this name are function calls."""
    _here[name] = service
    try:
        yield
    finally:
        del _here[name]


class Response(Protocol):
    """The parts of a response that the client uses."""

    @property
    def status_code(self) -> int: ...
    @property
    def content(self) -> bytes: ...


class HttpPoster(Protocol):
    """Sends a POST: `shared.http.http1.HttpClient` in the services, an httpx client in tests."""

    async def post(self, url: str, *, content: bytes, headers: Mapping[str, str], timeout: float) -> Response: ...


class ServiceClient:
    """Calls one service. Every call is idempotent by contract, so it is repeated once after a lost connection."""

    def __init__(self, client: HttpPoster, base_url: str, keys: Keyring, *, name: str) -> None:
        self._client = client
        self._base_url = base_url.rstrip("/")
        self._keys = keys
        self._name = name
        self._calls_here = asyncio.Semaphore(CONNECTIONS_MAX)

    async def call(self, path: str, request: BaseModel, answer: type[Answer], *, deadline_s: float = 2.0) -> Answer:
        """POSTs to `/internal{path}`. Raises the service's own problem, or `Unavailable` if it does not answer."""
        with tracing.span(f"call {self._name} /internal{path}", kind=SpanKind.CLIENT):
            if (own := _here.get(self._name)) is not None:
                answered = await self._call_here(own, path, request, deadline_s)
                assert isinstance(answered, answer), f"{self._name}{path} answered {type(answered)}"
                return answered
            response = await self._send(f"/internal{path}", request.model_dump_json().encode(), deadline_s)
            if response.status_code != 200:
                raise from_document(response.status_code, response.content)
            return answer.model_validate_json(response.content)

    async def _call_here(self, own: OwnService, path: str, request: BaseModel, deadline_s: float) -> BaseModel:
        try:
            async with asyncio.timeout(deadline_s), self._calls_here:
                return await own(path, request)
        except TimeoutError as late:
            raise Unavailable(f"The {self._name} did not answer in time.") from late

    async def _send(self, path: str, body: bytes, deadline_s: float) -> Response:
        for last in (False, True):
            headers = sign_service_call(self._keys, "POST", path, body) | tracing.headers() | sale_log.headers()
            try:
                return await self._client.post(self._base_url + path, content=body, headers=headers, timeout=deadline_s)
            except (TimeoutError, httpx.TimeoutException) as late:
                raise Unavailable(f"The {self._name} did not answer in time.") from late
            except (ConnectionError, httpx.TransportError) as gone:
                if last:
                    raise Unavailable(f"The {self._name} does not answer.") from gone
        raise AssertionError("unreachable")


@asynccontextmanager
async def client() -> AsyncIterator[HttpPoster]:
    """The connections through which a service calls the others."""
    async with HttpClient(connections_max=CONNECTIONS_MAX) as connections:
        yield connections


def sign_service_call(keys: Keyring, method: str, path: str, body: bytes, *, at_s: int | None = None) -> dict[str, str]:
    """The headers of an internal call: an HMAC over method, path, time and the hash of the body."""
    at = str(int(time.time()) if at_s is None else at_s)
    mac = keys.mac("service", method, path, at, hashlib.sha256(body).digest())
    return {SERVICE_HEADER: f"{keys.kid}.{at}.{b64(mac)}", "content-type": "application/json"}


def check_service_call(keys: Keyring, header: str, method: str, path: str, body: bytes, *, now_s: float) -> None:
    """Raises `BadCredential` unless a service signed exactly this call within the last 30 s."""
    try:
        kid, at, mac = header.split(".")
        fresh = abs(now_s - int(at)) <= SERVICE_SKEW_MAX_S
        expected = keys.mac("service", method, path, at, hashlib.sha256(body).digest(), kid=kid)
        if fresh and hmac.compare_digest(unb64(mac), expected):
            return
    except (ValueError, KeyError) as broken:
        raise BadCredential from broken
    raise BadCredential
