"""The line in words: its state before a fan joins, and the wait of a fan who has a place.

The pages' scripts say the same (`web/fans/lobby.js`, `wait_words.js`), so that nothing jumps when they take over.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from services.gateway.fan_pages.formats import moment, wait_between
from shared.words.words import Words

LOBBY = {
    "prequeue": ("lobby_prequeue", "lobby_prequeue_text", True),
    "open": ("lobby_open", "lobby_open_text", True),
    "last_chance": ("state_last_chance", "lobby_last_chance_text", True),
    "paused": ("lobby_paused", "lobby_paused_text", True),
    "draining": ("lobby_draining", "lobby_draining_text", False),
    "sold_out": ("state_sold_out", "lobby_sold_out_text", False),
    "closed": ("sale_closed_title", "lobby_closed_text", False),
    "draft": ("state_draft", "lobby_draft_text", False),
}
STANDSTILL = {"paused": "line_paused", "last_chance": "line_last_chance"}
NOBODY_CALLED = {"stock-low": "nobody_stock_low", "room-full": "nobody_room_full", "slower": "nobody_slower"}
CHANGED = {
    name: f"changed_{name.replace('-', '_')}"
    for name in ("rate-lowered", "throttled", "recovering", "other-lanes", "room-full", "fans-returned", "slower",
                 "start-moved")
}  # fmt: skip
CHANGE_SHOWN = timedelta(minutes=10)
Line = Mapping[str, Any]  # the public line, as `GET /events/{event_id}/queue` answers it


class Lobby(NamedTuple):
    """What a fan without a place reads; `lanes` are those that need a code, `starts_at` is a moment in words."""

    title: str
    text: str
    takes_fans: bool
    length: str
    join: str
    lanes: str
    starts_at: str


def lobby(text: Words, line: Line, zone: str) -> Lobby:
    state, lottery = line["state"], line.get("lottery")
    title, more, takes_fans = LOBBY.get(state, LOBBY["closed"])
    if lottery and state == "open":
        more = "lobby_open_lottery"
    lanes = [lane["name"] for lane in line.get("lanes", {}).values() if lane.get("code_required")]
    starts_at = line.get("sale_starts_at") if state == "prequeue" else None
    return Lobby(
        title=text(title), text=text(more), takes_fans=takes_fans, length=_length(text, line) if takes_fans else "",
        join=text("enter_lottery" if lottery == "open" else "join"),
        lanes=text("list_comma").join(lanes),
        starts_at=moment(text, datetime.fromisoformat(starts_at), zone) if starts_at else "",
    )  # fmt: skip


def _length(text: Words, line: Line) -> str:
    waiting = max(0, line["tail_seq"] - line["head_seq"])
    if waiting == 0:
        return text("nobody_waits")
    rate = line["rate_per_s"]
    pace = text("called_per_minute", n=max(1, round(rate * 60))) if rate > 0 else ""
    return f"{text('fans_in_line', n=waiting)} {pace}".strip()


def estimate(text: Words, status: Mapping[str, Any]) -> str:
    """How long it takes, or why nobody can say."""
    if status["state"] in STANDSTILL:
        return text(STANDSTILL[status["state"]])
    if status["position_in_queue"] == 0:
        return text("called_soon")
    low_s, high_s = status.get("estimated_wait_low"), status.get("estimated_wait_high")
    if low_s is not None:
        return text("turn_in", wait=wait_between(text, low_s, high_s))
    changed = status.get("estimate_changed") or {}
    return text(NOBODY_CALLED.get(changed.get("reason", ""), "wait_unknown"))


def change(text: Words, status: Mapping[str, Any]) -> str:
    """Why the wait grew, for some minutes."""
    changed = status.get("estimate_changed")
    if not changed or datetime.now(UTC) - datetime.fromisoformat(changed["at"]) > CHANGE_SHOWN:
        return ""
    return text(CHANGED[changed["reason"]]) if changed["reason"] in CHANGED else ""
