"""The client for operators: the operations of the suite's admin APIs, sent with one operator's key.

`await operator.read_room("arena")` is answered with a `RoomView`.
"""

from collections.abc import Mapping
from typing import Any

import httpx

from onsale.client.connection import Connection, new_key
from shared.contracts.admin.operation import RequestBody, as_json
from shared.contracts.admin.operator_calls import OPERATIONS, OperatorCalls

TIMEOUT_S = 60.0


class Operator(OperatorCalls, Connection):
    """One operator, by their admin key. Raises `Problem`, and pydantic's `ValidationError` for an answer of a suite of
    another version. Only reads and calls with a `key` are sent again; where one is needed and missing, it is made.
    """

    def __init__(
        self, url: str, key: str, *, http: httpx.AsyncClient | None = None, timeout_s: float = TIMEOUT_S,
        attempts_max: int = 5,
    ) -> None:  # fmt: skip
        super().__init__(url, token=key, http=http, timeout_s=timeout_s, attempts_max=attempts_max)

    async def call(
        self, operation: str, /, body: RequestBody = None, *, query: Mapping[str, Any] | None = None,
        key: str | None = None, **path_values: str | int,
    ) -> Any:  # fmt: skip
        """What the operation answers. Query values that are None are left out; calls with the same idempotency `key`
        are one call; fields that a newer suite adds are accepted.
        """
        found = OPERATIONS[operation]
        if found.takes_key:
            key = key or new_key()
        content = await self.content(
            operation, found.method, found.address(path_values), query=query, body=as_json(body),
            headers={"idempotency-key": key}, repeatable=found.method == "GET" or key is not None,
        )  # fmt: skip
        return found.read(content, extra="allow")
