"""Asking a neighbour: HTTP on its internal listener, signed, with a deadline.

Its problem comes back as the same class.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import httpx
from pydantic import BaseModel

from shared.rpc.http1 import HttpClient
from shared.security.auth import sign_service_call
from shared.security.tokens import Keyring
from shared.web.problems import Unavailable, from_document

Answer = TypeVar("Answer", bound=BaseModel)
CONNECTIONS_MAX = 32


class Response(Protocol):
    """What an answer must have."""

    @property
    def status_code(self) -> int: ...
    @property
    def content(self) -> bytes: ...


class Client(Protocol):
    """Whatever can post: `shared.rpc.http1.Wire` in the services, an httpx client where a test stands in for a
    neighbour.
    """

    async def post(self, url: str, *, content: bytes, headers: Mapping[str, str], timeout: float) -> Response: ...


class ServiceClient:
    """One service behind us. Every ask is idempotent by contract, so a broken connection is tried once more."""

    def __init__(self, client: Client, base_url: str, keys: Keyring, *, name: str) -> None:
        self._client = client
        self._base_url = base_url.rstrip("/")
        self._keys = keys
        self._name = name

    async def ask(self, path: str, question: BaseModel, answer: type[Answer], *, deadline_s: float = 2.0) -> Answer:
        """POSTs to `/internal{path}`. Raises the neighbour's own problem, or `Unavailable` when it does not answer."""
        path, body = f"/internal{path}", question.model_dump_json().encode()
        response = await self._send(path, body, deadline_s)
        if response.status_code != 200:
            raise from_document(response.status_code, response.content)
        return answer.model_validate_json(response.content)

    async def _send(self, path: str, body: bytes, deadline_s: float) -> Response:
        for last in (False, True):
            headers = sign_service_call(self._keys, "POST", path, body)
            try:
                return await self._client.post(self._base_url + path, content=body, headers=headers, timeout=deadline_s)
            except (TimeoutError, httpx.TimeoutException) as late:
                raise Unavailable(f"The {self._name} did not answer in time.") from late
            except (ConnectionError, httpx.TransportError) as gone:
                if last:
                    raise Unavailable(f"The {self._name} does not answer.") from gone
        raise AssertionError("unreachable")


@asynccontextmanager
async def client() -> AsyncIterator[Client]:
    """The connections a service asks its neighbours through."""
    async with HttpClient(connections_max=CONNECTIONS_MAX) as wire:
        yield wire
