"""Errors of the sandbox: a code for programs and a sentence for people; they never repeat what was sent."""

from collections.abc import Mapping


class RequestRefused(Exception):
    """A call that was not carried out; nothing was stored."""

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    def answer(self) -> dict[str, object]:
        return {"error": {"code": self.code, "message": self.message}}


class StoreDamaged(Exception):
    """The file of charges cannot be read: a person must repair or move it before new charges are written to it."""
