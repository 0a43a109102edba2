"""Operations of the operators' API, called by name.

The route says everything about its operation. From the OpenAPI document that it gives, `operator_calls.py` is made: the
table `OPERATIONS`, and a typed method for each. Who calls them says how a request is sent.
"""

from collections.abc import AsyncIterator, Mapping
from functools import cache, reduce
from importlib import import_module
from operator import or_
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

from pydantic import BaseModel, TypeAdapter

RequestBody = BaseModel | Mapping[str, Any] | bytes | None
FILE = "bytes"


class Control(NamedTuple):
    """An operation that can be made to need a second person, of this role; with `action`, where the path has it."""

    name: str
    role: Literal["operator", "admin"]
    action: str = ""


class AdminOperation(NamedTuple):
    """`path` has its parameters in braces. `answer` and `body` name models as `module:Name`, several joined by `|`; a
    file is `bytes`, nothing is None. With `takes_key`, requests with the same idempotency key are one request.
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    answer: str | None = None
    body: str | None = None
    takes_key: bool = False
    control: Control | None = None

    def address(self, values: Mapping[str, str | int]) -> str:
        """The path with these values."""
        return self.path.format(**{name: quote(str(value), safe="") for name, value in values.items()})

    def read(self, content: bytes, *, extra: Literal["allow"] | None = None) -> Any:
        """The answer. Raises `ValidationError` for one in another form; `extra` fields may be allowed."""
        if self.answer == FILE:
            return content
        return models(self.answer).validate_json(content, extra=extra) if self.answer else None


@cache
def models(names: str) -> TypeAdapter[Any]:
    """Reads what has one of these forms. Their modules are imported here: building models takes longer than most
    commands take to run.
    """
    parts = (each.partition(":") for each in names.split("|"))
    return TypeAdapter(reduce(or_, [getattr(import_module(module), name) for module, _, name in parts]))


_ANY: TypeAdapter[Any] = TypeAdapter(Any)


def as_json(body: RequestBody) -> Any:
    """The body as JSON has it; bytes stay."""
    return body if isinstance(body, bytes) else _ANY.dump_python(body, mode="json")


class OperationCalls:
    """Calls of the operations by their names; see `OPERATIONS`."""

    async def call(
        self, operation: str, /, body: RequestBody = None, *, query: Mapping[str, Any] | None = None,
        key: str | None = None, **path_values: str | int,
    ) -> Any:  # fmt: skip
        """What the operation answers. Query values that are None are left out."""
        raise NotImplementedError

    async def pages(
        self, operation: str, /, *, query: Mapping[str, Any] | None = None, **path_values: Any
    ) -> AsyncIterator[Any]:
        """Every page of a list, from the one of this query on."""
        while True:
            page = await self.call(operation, query=query, **path_values)
            yield page
            if page.next is None:
                return
            query = dict(parse_qsl(urlsplit(page.next).query))
