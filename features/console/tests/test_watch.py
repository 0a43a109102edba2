"""The terminal shows what the stream says, in 80 columns; what is old or unknown is not shown as if it were new."""

import io
from typing import Any

import pytest
from rich.console import Console

from features.console.cli.watch import COLUMNS, Watched, applied, draw
from features.console.schemas import Snapshot

AT_MS = 1_800_000_000_000
STEPS = ("joined", "called", "claimed", "held", "ordered", "confirmed")
ALARM = (
    '[{"name": "Oversold", "severity": "critical", "summary": "x", "meaning": "", "check_first": "", "do": "y",'
    ' "since_ms": 0}]'
)
VITALS: dict[str, Any] = {
    "event_id": "arena", "at_ms": AT_MS, "ages": {"queue": 0.4, "inventory": 0.4, "orders": 0.4, "notifier": 0.4},
    "room": {"state": "open", "version": 3, "active": 120, "max_active": 400, "message": "Doors open soon"},
    "line": {"waiting": 1_234_567, "called": 900, "claimed": 850},
    "rate": {"set_per_s": 50, "effective_per_s": 12.5, "called_per_s": 12.0, "why": "orders-slow"},
    "wait": {"p50_s": 61.0, "p95_s": 3_700.0},
    "stock": {"free": 10, "held": 5, "sold": 85, "total": 100,
              "sections": [{"section_id": f"S{n}", "free": n, "held": 1, "sold": 2} for n in range(40)]},
    "sell": {"per_min": 30, "out_s": 30.0, "out_earliest_s": 20.0, "out_latest_s": None},
    "orders": {"confirmed": 80, "pending": 4, "due": 0, "in_review": 0},
    "funnel": [{"name": name, "fans": 1000} for name in STEPS],
    "proof": {"oversold": 0, "duplicates": 0, "inversions": 0, "charged_twice": 0, "at_ms": AT_MS - 12_000},
}  # fmt: skip
CHANGE = {
    "service": "queue", "id": 1, "at_ms": AT_MS, "actor": "ann", "action": "change", "subject": "event:arena",
    "reason": "a very long reason " * 10, "before": None, "after": None,
}  # fmt: skip


def snapshot(**vitals: Any) -> Snapshot:
    return Snapshot.model_validate({
        "name": "The Arena " * 12, "venue": "A hall", "starts_at": None, "currency": "EUR", "vitals": VITALS | vitals,
        "alarms": [], "changes": [CHANGE] * 20,
        "processes": [{"service": "queue", "process": "q", "state": "silent", "writes_per_s": None, "p95_ms": None,
                       "heard_ms": AT_MS}],
    })  # fmt: skip


def shown(watched: Watched) -> str:
    screen = Console(file=io.StringIO(), width=COLUMNS, force_terminal=False)
    screen.print(draw(watched))
    return screen.file.getvalue()  # type: ignore[attr-defined]


def test_a_sale_fits_eighty_columns() -> None:
    text = shown(Watched(snapshot()))
    assert max(map(len, text.splitlines())) <= COLUMNS
    for part in ("1,234,567", "12.5", "orders-slow", "1 h 1 min", "30 s", "Message to fans: Doors open soon",
                 "and 34 more", "proven 12 s ago", "queue 0 (1 silent)", "joined 1,000"):  # fmt: skip
        assert part in text, part
    assert text.count("ann change") == 5


def test_what_is_old_or_unknown_is_said() -> None:
    text = shown(Watched(snapshot(ages={"queue": None, "inventory": 9.0, "orders": 0.1, "notifier": 0.1}), False))
    assert "No answer from queue, inventory: dim figures are old." in text
    assert "no answer from the console" in text
    assert "Not counted by queue, orders: reports are off there." in shown(
        Watched(snapshot(without_reports=["queue", "orders"]))
    )
    assert "Not proven yet" in shown(Watched(snapshot(proof={})))
    assert "–" in shown(Watched(snapshot(line={})))


@pytest.mark.parametrize(
    ("name", "data", "part"),
    [
        ("vitals", snapshot(line={"waiting": 7}).vitals.model_dump_json(), "7   Free"),
        ("alarms", ALARM, "Oversold"),
        ("processes", "[]", "Processes: \n"),
        ("change", Snapshot.model_validate(snapshot()).changes[0].model_copy(update={"actor": "bob"}).model_dump_json(),
         "bob change"),
        ("something new", "{}", "1,234,567"),
    ],
)  # fmt: skip
def test_a_message_changes_its_part(name: str, data: str, part: str) -> None:
    assert applied(None, name, data) is None, "nothing before the first snapshot"
    after = applied(snapshot(), name, data)
    assert after is not None
    assert part in shown(Watched(after))
