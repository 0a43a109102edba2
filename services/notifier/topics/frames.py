"""Encodes frames: the events of a stream about a line, its sections or an order, once for all listeners.

Items are compared without their timestamps, so that a repeated frame without changes is not sent again.
"""

import random
from collections.abc import Container, Iterable
from typing import Any

import orjson

from shared.contracts.frames import LineFrame, OrderFrame, StockFrame
from shared.runtime.clock import now_ms, rfc3339

HEARTBEAT = b"event: beat\ndata: {}\n\n"  # an event, because pages cannot see comments and must notice a dead stream
INTERRUPTED = "Live updates are interrupted. Numbers here may be a few seconds old."
RESTORED = "Live updates are back."
REJECTED = "Too many open streams right now. Poll every few seconds until the stream is back."


def line_body(frame: LineFrame, *, degraded: bool) -> dict[str, Any]:
    """Body of `line`: lane 0 at the top level, other lanes under `lanes`."""
    lanes = {str(lane): {"head_seq": at.head_seq, "tail_seq": at.tail_seq} for lane, at in frame.lanes.items()}
    general = lanes.pop("0", {"head_seq": 0, "tail_seq": 0})
    fact: dict[str, Any] = {
        "state": frame.state,
        **general,
        "rate_per_s": frame.rate_per_s,
        "live_ratio": frame.live_ratio,
        "message": frame.message,
        "epoch": frame.epoch,
    }
    if frame.throttled is not None:
        fact["throttled"] = frame.throttled.model_dump()
    if frame.lottery is not None:
        fact["lottery"] = frame.lottery.stage
    return fact | ({"lanes": lanes} if lanes else {}) | ({"degraded": True} if degraded else {})


def section_items(frame: StockFrame) -> dict[str, object]:
    """The counts of each section, without timestamps."""
    return {section.section_id: (section.available, section.held, section.reserved) for section in frame.sections}


def sections_body(frame: StockFrame, names: Container[str], *, delta: bool, degraded: bool) -> dict[str, Any]:
    """Body of `sections`: the named ones. A delta updates what the client has, anything else replaces it."""
    sections = [
        {
            "section_id": section.section_id,
            "available_seats": section.available,
            "held_seats": section.held,
            **({"reserved_seats": section.reserved} if section.reserved else {}),
            "timestamp": rfc3339(section.at_ms),
        }
        for section in frame.sections
        if section.section_id in names
    ]
    body: dict[str, Any] = {"sections": sections, "timestamp": rfc3339(frame.at_ms)}
    return body | ({"delta": True} if delta else {}) | ({"degraded": True} if degraded else {})


def order_body(frame: OrderFrame, *, degraded: bool) -> dict[str, Any]:
    """Body of `order`: what `GET /orders/{reference}` answers."""
    return frame.body | ({"degraded": True} if degraded else {})


def notice(*, interrupted: bool) -> bytes:
    """The event of an interruption, or of its end."""
    kind, message = ("interrupted", INTERRUPTED) if interrupted else ("restored", RESTORED)
    data = orjson.dumps({"kind": kind, "message": message, "timestamp": rfc3339(now_ms())})
    return encode_events([("notice", data)], None)


def rejected(reason: str) -> bytes:
    """The event of a rejected stream: a page then polls until it reconnects."""
    return encode_events([("turned_away", orjson.dumps({"why": reason, "message": REJECTED}))], None)


def encode_events(events: Iterable[tuple[str, bytes]], frame_id: bytes | None) -> bytes:
    """Events on the wire. The last one carries the id: a stream cut between two events does not resume after them."""
    *first, (name, data) = events
    head = b"".join(b"event: %b\ndata: %b\n\n" % (name.encode(), data) for name, data in first)
    id_line = b"" if frame_id is None else b"id: %b\n" % frame_id
    return head + b"event: %b\n%bdata: %b\n\n" % (name.encode(), id_line, data)


def retry(after_ms: int, over_ms: int) -> bytes:
    """Tells the browser to reconnect after `after_ms` to `after_ms + over_ms`, at random, to spread a crowd."""
    return b"retry: %d\n\n" % random.randint(after_ms, after_ms + over_ms)  # noqa: S311 - guards nothing
