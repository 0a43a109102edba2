"""Errors of the sandbox: a code for programs and a sentence for people; they never repeat what was sent."""

from dataclasses import dataclass, field


@dataclass(eq=False)
class RequestRefused(Exception):
    """A call that was not carried out; nothing was stored."""

    status: int
    code: str
    message: str
    headers: dict[str, str] = field(default_factory=dict)


class StoreDamaged(Exception):
    """The file of charges cannot be read: a person must repair or move it before new charges are written to it."""
