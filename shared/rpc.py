"""The client of another service: signed HTTP calls to its internal listener, with a deadline.

A problem that the service answers is raised as the same class.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import httpx
from opentelemetry.trace import SpanKind
from pydantic import BaseModel

from shared.errors.problems import Unavailable, from_document
from shared.http.http1 import HttpClient
from shared.runtime import tracing
from shared.runtime.logging import sale_log
from shared.security.auth import sign_service_call
from shared.security.tokens import Keyring

Answer = TypeVar("Answer", bound=BaseModel)
CONNECTIONS_MAX = 32


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

    async def call(self, path: str, request: BaseModel, answer: type[Answer], *, deadline_s: float = 2.0) -> Answer:
        """POSTs to `/internal{path}`. Raises the service's own problem, or `Unavailable` if it does not answer."""
        path, body = f"/internal{path}", request.model_dump_json().encode()
        if tracing.tracer is None:
            response = await self._send(path, body, deadline_s)
        else:
            with tracing.span(f"call {self._name} {path}", kind=SpanKind.CLIENT):
                response = await self._send(path, body, deadline_s)
        if response.status_code != 200:
            raise from_document(response.status_code, response.content)
        return answer.model_validate_json(response.content)

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
