"""`Problem`: the one exception of the client, for every answer that is not a success and for none at all."""

from collections.abc import Mapping
from typing import Any, Protocol

import orjson

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
