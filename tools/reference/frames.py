"""Frames: what the streams of the notifier and of the console send, and what services publish to each other.

The fields of the notifier's events are those of a frame made here, so a new one without a meaning stops the page.
"""

import inspect
import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_args

from features.hall import seat_codes
from shared.contracts import frames
from shared.contracts.room_options import RoomOptions
from tools.reference import model_fields
from tools.reference.markdown import Section, code, page

AT_MS, AT = 1_795_273_200_250, "2026-11-21T15:00:00.250Z"
TEXT = """Streams are server-sent events: each has a name, `data` in JSON, and often an `id`. [Live
updates](../use/live-updates.md) says how to follow one and how to apply it; new fields and events may be added.
Services tell each other the same states in frames on Pub/Sub, which are at the end of this page."""
EVENTS = {
    "line": ("The waiting line, whole, whenever it changed.", {
        "state": "Of the room, as fans see it.", "head_seq": "Highest number called.",
        "tail_seq": "Highest number given.", "rate_per_s": "Calls per second in force.",
        "live_ratio": "Share of the places that are still there.", "message": "The operator's message, or null.",
        "epoch": "Of the room; tokens of an earlier one are void.",
        "throttled": "Why less than the operator's rate is in force, and the share that is left; else absent.",
        "lottery": "Stage of the lottery, if there is one.", "lanes": "Head and tail of the lanes beside lane 0.",
        "degraded": "True while Pub/Sub is away and the figures are polled; else absent."}),
    "sections": ("What is left, of all sections or of those that changed.", {
        "sections": "A list of `section_id`, `available_seats`, `held_seats` and `timestamp`; `reserved_seats` where "
        "there are any.",
        "timestamp": "Of the newest figure.", "delta": "True if it names only what changed; else absent.",
        "degraded": "True while Pub/Sub is away and the figures are polled; else absent."}),
    "seats": ("The states of seats, two bits each, then what changed ([the hall](../use/hall.md)).", {
        "v": "Version of the state.", "s": "All states, in base64; or", "after": "the version that it changes, and",
        "d": "what changed, in base64."}),
    "notice": ("An interruption, and its end.", {
        "kind": "`interrupted` or `restored`.", "message": "A sentence for fans.", "timestamp": "When."}),
    "turned_away": ("The stream is refused for now; poll, and try again after `retry`.", {
        "why": "The reason, such as `full`; `notifier_streams_rejected_total` counts each.",
        "message": "A sentence for fans."}),
    "beat": ("Nothing changed for a while; a stream silent for 25 s is broken.", {}),
    "order": ("An order, whole, whenever it changed: what `GET /orders/{reference}` answers.", {}),
}  # fmt: skip
CHANNELS: dict[model_fields.Model, str] = {
    frames.LineFrame: frames.line_channel("EVENT_ID"), frames.StockFrame: frames.stock_channel("EVENT_ID"),
    seat_codes.SeatsFrame: seat_codes.seats_channel("EVENT_ID"), frames.OrderFrame: frames.order_channel("REFERENCE"),
    frames.Revoked: frames.revoked_channel("EVENT_ID"), frames.LoadFrame: frames.load_channel("SERVICE"),
}  # fmt: skip


def frames_page() -> str:
    """docs/reference/frames.md"""
    published = {code(channel): model for model, channel in CHANNELS.items()}
    return page("Frames", TEXT, [
        Section("Streams of events and orders", text="`GET /events/{event_id}/sections/updates` sends all of these but "
                "`order`, `GET /orders/{reference}/updates` sends `order`, `notice`, `turned_away` and `beat`."),
        *_of_notifier(),
        Section("Stream of the console", text="`GET /console/api/events/{event_id}/stream`, for operators. Of an event "
                "with a list, `data` is the list."),
        *model_fields.sections(console_messages()),
        Section("Published by services", text="The body of a message on Redis Pub/Sub, by channel; on a cluster also "
                "on the channel's shard. Each line, stock and hall is repeated at least every "
                f"{frames.FRAME_REPEAT_S:g} s; one older than {frames.FRAME_STALE_S:g} s pauses what depends on it."),
        *model_fields.sections(published),
    ])  # fmt: skip


def console_messages() -> dict[str, model_fields.Model]:
    """The model of each event of the console's stream, by its name."""
    module = import_module("features.console.streams")
    found = dict[str, model_fields.Model]()
    for name, function in inspect.getmembers(module, inspect.isfunction):
        hint = function.__annotations__.get("found")
        if hint is not None and not name.startswith("_"):
            found[code(name)] = next(iter(get_args(hint)), hint)
    return found


def notifier_examples() -> dict[str, dict[str, Any]]:
    """An example of the data of each event of the notifier, made by the notifier's own code."""
    encode, part = (import_module(name) for name in ("services.notifier.topics.frames", "features.hall.notifier"))
    common: dict[str, Any] = {"event_id": "arena-2026", "epoch": 1, "version": AT_MS, "ready": True, "at_ms": AT_MS}
    line = frames.LineFrame(
        **common, state="open", rate_per_s=20, options=RoomOptions(),
        lanes={0: frames.LaneHead(head_seq=1200, tail_seq=48_211), 1: frames.LaneHead(head_seq=80, tail_seq=95)},
        throttled=frames.Throttled(factor=0.5, reason="orders-slow"), lottery=frames.RankingFrame(stage="drawn"),
    )  # fmt: skip
    counts = frames.SectionCounts(section_id="A", available=412, held=37, sold=551, at_ms=AT_MS)
    stock, seats = frames.StockFrame(**common, sections=[counts]), part.SeatPart(whole_hall=False)
    seats.update(bytes(8), epoch=1, version=AT_MS)
    whole = json.loads(seats.encode(None))
    seats.update(bytes([*bytes(7), 1]), epoch=1, version=AT_MS + 1)
    return {
        "line": encode.line_body(line, degraded=True),
        "sections": encode.sections_body(stock, {"A"}, delta=True, degraded=True),
        "seats": whole | json.loads(seats.encode({"A"})),
        "notice": _data(encode.notice(interrupted=True)) | {"timestamp": AT},
        "turned_away": _data(encode.rejected("full")), "beat": _data(encode.HEARTBEAT), "order": {},
    }  # fmt: skip


def _data(event: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(event.partition(b"data: ")[2])
    return found


def _of_notifier() -> Iterator[Section]:
    for name, example in notifier_examples().items():
        text, meanings = EVENTS[name]
        shown = f"```json\n{json.dumps(example, ensure_ascii=False)}\n```" if example else ""
        rows = [(code(field), meanings[field]) for field in example]
        yield Section(code(name), ("field", "what it says"), rows, text=text, after=shown, level=3)
