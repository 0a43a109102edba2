"""Calls of the operators' API: its endpoints are the rows of `shared/contracts/admin`, with their models.

A test compares the rows with the OpenAPI documents of the services. `await operator.call(READ_ROOM, event_id="arena")`
is answered with a `RoomView`.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter

from onsale.client.connection import Connection, segment
from shared.contracts.admin.endpoint import Endpoint
from shared.contracts.admin.page import Page

Answered = TypeVar("Answered")
PageAnswered = TypeVar("PageAnswered", bound=Page)
RequestBody = BaseModel | Mapping[str, Any] | None
_BODY: TypeAdapter[Any] = TypeAdapter(Any)
TIMEOUT_S = 60.0


class EndpointCalls(Connection):
    """One operator, by their admin key. Raises `Problem`, and pydantic's `ValidationError` for an answer of a suite of
    another version. Only reads and calls with a `key` are sent again.
    """

    def __init__(
        self, url: str, key: str, *, http: httpx.AsyncClient | None = None, timeout_s: float = TIMEOUT_S,
        attempts_max: int = 5,
    ) -> None:  # fmt: skip
        super().__init__(url, token=key, http=http, timeout_s=timeout_s, attempts_max=attempts_max)

    async def call(
        self, endpoint: Endpoint[Answered], body: RequestBody = None, *,
        query: Mapping[str, Any] | None = None, key: str | None = None, **path_values: str | int,
    ) -> Answered:  # fmt: skip
        """What the endpoint answers. Query values that are None are left out; calls with the same idempotency `key`
        are one call; fields that a newer suite adds are accepted.
        """
        if endpoint.needs_key and key is None:
            raise ValueError(f"{endpoint.path} needs an idempotency key")
        path = endpoint.path.format(**{name: segment(value) for name, value in path_values.items()})
        return await self.call_at(endpoint, path, body, query=query, key=key)

    async def pages(
        self, endpoint: Endpoint[PageAnswered], *, query: Mapping[str, Any] | None = None, **path_values: str | int
    ) -> AsyncIterator[PageAnswered]:
        """Every page of a list."""
        page = await self.call(endpoint, None, query=query, key=None, **path_values)
        yield page
        while page.next is not None:
            page = await self.call_at(endpoint, page.next)
            yield page

    async def call_at(
        self, endpoint: Endpoint[Answered], path: str, body: RequestBody = None, *,
        query: Mapping[str, Any] | None = None, key: str | None = None,
    ) -> Answered:  # fmt: skip
        """What the endpoint answers at this path."""
        content = await self.content(
            endpoint.path, endpoint.method, path, query=query, body=_BODY.dump_python(body, mode="json"),
            headers={"idempotency-key": key}, repeatable=endpoint.method == "GET" or key is not None,
        )  # fmt: skip
        return TypeAdapter(endpoint.answer).validate_json(content or b"null", extra="allow")
