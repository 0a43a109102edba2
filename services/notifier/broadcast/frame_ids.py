"""Ids of frames, `<epoch>.<version>`: which state a listener has seen, in a form that any process can read back.

An event's version holds the line's and the stock's side by side, so two processes that have heard different halves
never give their states the same id; a stream of some sections only is marked with which. A state that nobody else
need have had (asked for, or told as degraded) is version 0, which resumes as a snapshot.
"""

import re
import zlib
from typing import NamedTuple

from services.notifier.feeds.feed import SectionFilter

STOCK_DIGITS, ONLY_DIGITS = 13, 9
LIMIT: int = 10**ONLY_DIGITS
_written = re.compile(rb"(\d{1,10})\.(\d{1,48})")


class Seen(NamedTuple):
    """What an id says was seen: versions of the line and of the stock."""

    epoch: int
    line: int
    stock: int


def event_id_of(seen: Seen, only: SectionFilter) -> bytes:
    """The id of an event's state as a stream with this filter tells it."""
    version = seen.line * 10**STOCK_DIGITS + seen.stock
    return b"%d.%d" % (seen.epoch, version if only is None else version * LIMIT + _mark(only))


def read_event_id(text: bytes, only: SectionFilter) -> Seen | None:
    """What was seen, if it was on a stream with this filter."""
    found = read_id(text)
    if found is None:
        return None
    epoch, version = found
    if only is not None:
        version, mark = divmod(version, LIMIT)
        if mark != _mark(only):
            return None
    return Seen(epoch, *divmod(version, 10**STOCK_DIGITS))


def unshared_id(epoch: int) -> bytes:
    """The id of a state that cannot be resumed from."""
    return b"%d.0" % epoch


def read_id(text: bytes) -> tuple[int, int] | None:
    """Epoch and version, or nothing when this is no id of ours."""
    found = _written.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2]))


def _mark(only: frozenset[str]) -> int:
    return zlib.crc32(",".join(sorted(only)).encode()) % LIMIT
