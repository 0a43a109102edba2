"""Ids of frames, `<epoch>.<version>`: the state that a listener has seen, readable by every process.

An event's version combines those of its line and its stock, so two processes with different halves never use the same
id; with a section filter it also carries the filter's hash. A state that other processes may not have had (requested,
or degraded) has version 0, from which a stream resumes with a snapshot.
"""

import re
import zlib
from typing import NamedTuple

from services.notifier.feeds.feed import SectionFilter

STOCK_DIGITS, FILTER_DIGITS = 13, 9
FILTER_HASHES: int = 10**FILTER_DIGITS
_pattern = re.compile(rb"(\d{1,10})\.(\d{1,48})")


class EventVersions(NamedTuple):
    """The versions of an event's line and stock."""

    epoch: int
    line: int
    stock: int


def event_frame_id(versions: EventVersions, section_filter: SectionFilter) -> bytes:
    """The id of an event's state in a stream with this filter."""
    version = versions.line * 10**STOCK_DIGITS + versions.stock
    return b"%d.%d" % (
        versions.epoch,
        version if section_filter is None else version * FILTER_HASHES + _filter_hash(section_filter),
    )


def parse_event_frame_id(text: bytes, section_filter: SectionFilter) -> EventVersions | None:
    """The versions of an id; `None` if it is not an id of a stream with this filter."""
    match = parse_frame_id(text)
    if match is None:
        return None
    epoch, version = match
    if section_filter is not None:
        version, filter_hash = divmod(version, FILTER_HASHES)
        if filter_hash != _filter_hash(section_filter):
            return None
    return EventVersions(epoch, *divmod(version, 10**STOCK_DIGITS))


def non_resumable_id(epoch: int) -> bytes:
    """The id of a state that cannot be resumed from."""
    return b"%d.0" % epoch


def parse_frame_id(text: bytes) -> tuple[int, int] | None:
    """Epoch and version; `None` if this is not a frame id."""
    match = _pattern.fullmatch(text)
    return None if match is None else (int(match[1]), int(match[2]))


def _filter_hash(section_filter: frozenset[str]) -> int:
    return zlib.crc32(",".join(sorted(section_filter)).encode()) % FILTER_HASHES
