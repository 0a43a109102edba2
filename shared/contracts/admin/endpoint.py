"""One endpoint of an admin API as its clients know it: how it is addressed, what it takes and what it answers.

Each service's endpoints stand below its models, one row each; a test compares the rows with the service's OpenAPI.
"""

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel

Answer_co = TypeVar("Answer_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Answer_co]):
    """`path` has its parameters in braces; `answer` is `NoneType` for an empty response. With `needs_key` the endpoint
    takes an idempotency key: requests with the same key are one request.
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    answer: type[Answer_co]
    body: type[BaseModel] | None = None
    needs_key: bool = False
