"""The journal of an order: the commands that were run for it, each with its cause and its result (`checkout_command`).

Entries are added at the end and never removed, so that the place of a command gives its id. It stays bounded: beyond
`ENTRIES_MAX` the last command of the same kind is opened again.
"""

import uuid
from dataclasses import replace
from typing import Any

from services.orders.model.order import JournalEntry

ENTRIES_MAX = 100
REPLAY_OF = "rerun_of"  # in the payload of a command that repeats another
Journal = tuple[JournalEntry, ...]


def command_id(reference: str, place: int) -> str:
    """The id of the command at this place of an order's journal, counted from 1. It tells both, so that no index is
    needed to find it; the view `checkout_command` computes the same.
    """
    return str(uuid.UUID(reference.encode().hex().ljust(24, "0") + f"{place:08x}"))


def place_of(command_id: str) -> tuple[str, int]:
    """The order and the place that an id tells; of one that is none of ours, an order that does not exist."""
    digits = uuid.UUID(command_id).hex
    return bytes.fromhex(digits[:24]).rstrip(b"\0").decode("ascii", "replace"), int(digits[24:], 16)


def opened(
    journal: Journal, kind: str, *, by: str, at_ms: int, tries: int = 0, error: str | None = None,
    payload: dict[str, Any] | None = None,
) -> Journal:  # fmt: skip
    """With a command more, which a later step ends."""
    new = JournalEntry(type=kind, by=by, status="processing", tries=tries, at_ms=at_ms, error=error, payload=payload)
    return _added(journal, new)


def has_open(journal: Journal, kind: str) -> bool:
    """Whether a command of this kind is open."""
    return any(command.is_open and command.type == kind for command in journal)


def tried(journal: Journal, kind: str, *, by: str | None, error: str, at_ms: int) -> Journal:
    """Counts a failed try of the open commands of this kind; with `by` one is opened if there is none."""
    if not has_open(journal, kind):
        return opened(journal, kind, by=by, at_ms=at_ms, tries=1, error=error) if by else journal
    return tuple(
        replace(command, tries=command.tries + 1, error=error) if command.is_open and command.type == kind else command
        for command in journal
    )


def ended(
    journal: Journal, kind: str, *, at_ms: int, error: str | None = None, by: str | None = None,
    place: int | None = None,
) -> Journal:  # fmt: skip
    """Ends the open commands of this kind, or only the one at `place`; all that repeat others if the kind is `rerun`.
    With `by` the command is recorded even if none was open.
    """
    status = "failed" if error else "completed"

    def is_meant(n: int, command: JournalEntry) -> bool:
        replays = kind == "rerun" and bool(command.payload) and REPLAY_OF in (command.payload or {})
        return command.is_open and (command.type == kind or replays) and place in (None, n)

    after = tuple(
        replace(command, status=status, tries=command.tries + 1, done_at_ms=at_ms, error=error)
        if is_meant(n, command)
        else command
        for n, command in enumerate(journal, start=1)
    )
    if by is None or has_open(journal, kind):
        return after
    return _added(
        after, JournalEntry(type=kind, by=by, status=status, tries=1, at_ms=at_ms, done_at_ms=at_ms, error=error)
    )


def _added(journal: Journal, new: JournalEntry) -> Journal:
    if len(journal) < ENTRIES_MAX:
        return (*journal, new)
    last = max((n for n, command in enumerate(journal) if command.type == new.type), default=len(journal) - 1)
    again = replace(new, at_ms=journal[last].at_ms, tries=journal[last].tries + new.tries)
    return (*journal[:last], again, *journal[last + 1 :])
