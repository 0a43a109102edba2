"""Asking a neighbour: HTTP on its internal listener, signed, with a deadline.

Its problem comes back as the same class.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx
from pydantic import BaseModel

from shared.auth import sign_service_call
from shared.problems import Unavailable, from_document
from shared.tokens import Keyring

Answer = TypeVar("Answer", bound=BaseModel)
CONNECTIONS_MAX = 32


class Neighbour:
    """One service behind us. Every ask is idempotent by contract, so a broken connection is tried once more."""

    def __init__(self, client: httpx.AsyncClient, base_url: str, keys: Keyring, *, name: str) -> None:
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

    async def _send(self, path: str, body: bytes, deadline_s: float) -> httpx.Response:
        for last in (False, True):
            headers = sign_service_call(self._keys, "POST", path, body)
            try:
                return await self._client.post(self._base_url + path, content=body, headers=headers, timeout=deadline_s)
            except (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as gone:
                if last:
                    raise Unavailable(f"The {self._name} does not answer.") from gone
            except httpx.TimeoutException as late:
                raise Unavailable(f"The {self._name} did not answer in time.") from late
        raise AssertionError("unreachable")


@asynccontextmanager
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """The pool of connections a service asks its neighbours through."""
    limits = httpx.Limits(
        max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX, keepalive_expiry=30
    )
    async with httpx.AsyncClient(limits=limits, trust_env=False) as pool:
        yield pool
