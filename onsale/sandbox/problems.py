"""How the sandbox says no: a code for programs, a sentence for people, never an echo of what was sent."""

from collections.abc import Mapping


class Refused(Exception):
    """A call that is not carried out; nothing changed in the books."""

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    def answer(self) -> dict[str, object]:
        return {"error": {"code": self.code, "message": self.message}}


class BooksDamaged(Exception):
    """The books file cannot be read back; somebody has to look at it before charges are taken on top of it."""
