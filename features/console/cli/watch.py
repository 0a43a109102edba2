"""`onsale watch`: the console's stream of one sale, read again when it ends, and drawn for a terminal of 80 columns.

A figure that is not known is a dash; one that is old is dim.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import httpx
import orjson
import typer
from pydantic import TypeAdapter, ValidationError
from rich import box
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from features.console.schemas import STREAM_PATH, ActiveAlarm, Change, Part, Process, Snapshot, Vitals
from onsale.cli.context import EventId, for_suite, out, run_async, target
from onsale.errors import OperatorError
from onsale.server_sent_events import messages

CONNECT_S, SILENT_MAX_S, RETRY_S, CHANGES_KEPT = 5.0, 20.0, 1.0, 50
_ALARMS, _PROCESSES = TypeAdapter(list[ActiveAlarm]), TypeAdapter(list[Process])
COLUMNS, NAME_MAX = 80, 32
LABEL_COLUMNS, VALUE_COLUMNS = 13, 11
OLD_S = 3.0
CHANGES_SHOWN = 5
SECTIONS_SHOWN = 6
COLOURS = {"critical": "bold red", "warning": "yellow", "info": "cyan"}


@for_suite
def watch(
    event_id: EventId,
    once: Annotated[bool, typer.Option("--once", help="Print the figures of this moment and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each state as one line of JSON.")] = False,
) -> None:
    """Watch a sale live: the same figures as in the console, once a second. Ctrl-C ends it.

    Example: onsale watch arena-2026
    """
    with suppress(KeyboardInterrupt):
        run_async(_watch(event_id, once=once, as_json=as_json))


async def _watch(event_id: str, *, once: bool, as_json: bool) -> None:
    async with aclosing(watched(target().url, target().admin_key, event_id)) as states:
        if once or as_json:
            async for state in states:
                out.print(state.snapshot.model_dump_json() if as_json else draw(state), soft_wrap=as_json, markup=False)
                if once:
                    return
        else:
            with Live(console=out, auto_refresh=False, screen=out.is_terminal) as live:
                async for state in states:
                    live.update(draw(state), refresh=True)


@dataclass(frozen=True)
class Watched:
    """What is known now, and whether the console answers at this moment."""

    snapshot: Snapshot
    connected: bool = True


async def watched(url: str, key: str, event_id: str) -> AsyncGenerator[Watched, None]:
    """Each new state of the event, without end.

    Raises `OperatorError` if the console refuses, or does not answer at first.
    """
    last: Snapshot | None = None
    while True:
        try:
            async for last in _snapshots(url, key, event_id):
                yield Watched(last)
        except (httpx.HTTPError, ValidationError) as broken:
            if last is None:
                raise OperatorError(f"No console answers at {url}: is `onsale up` running?") from broken
        if last is not None:
            yield Watched(last, connected=False)
        await asyncio.sleep(RETRY_S)


async def _snapshots(url: str, key: str, event_id: str) -> AsyncIterator[Snapshot]:
    timeout = httpx.Timeout(CONNECT_S, read=SILENT_MAX_S)
    headers = {"authorization": f"Bearer {key}", "accept": "text/event-stream"}
    async with (
        httpx.AsyncClient(trust_env=False, timeout=timeout) as client,
        client.stream("GET", url + STREAM_PATH.format(event_id=event_id), headers=headers) as response,
    ):
        if response.is_server_error:  # a balancer that finds no console answers so
            response.raise_for_status()
        if response.is_error:
            await response.aread()
            raise OperatorError(_detail(response))
        snapshot: Snapshot | None = None
        async for name, data, *_ in messages(response.aiter_lines()):
            snapshot = applied(snapshot, name, data)
            if snapshot is not None:
                yield snapshot


def applied(snapshot: Snapshot | None, name: str, data: str) -> Snapshot | None:
    """The snapshot after a message; none before the first one."""
    if name == "snapshot":
        return Snapshot.model_validate_json(data)
    if snapshot is None:
        return None
    changed: dict[str, Any] = {}
    if name == "vitals":
        changed["vitals"] = Vitals.model_validate_json(data)
    elif name == "alarms":
        changed["alarms"] = _ALARMS.validate_json(data)
    elif name == "processes":
        changed["processes"] = _PROCESSES.validate_json(data)
    elif name == "change":
        changed["changes"] = [Change.model_validate_json(data), *snapshot.changes][:CHANGES_KEPT]
    return snapshot.model_copy(update=changed)


def _detail(response: httpx.Response) -> str:
    try:
        return str(orjson.loads(response.content)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"The console answered {response.status_code}."


def draw(watched: Watched) -> RenderableType:
    """The whole screen."""
    snapshot = watched.snapshot
    vitals = snapshot.vitals
    parts: list[RenderableType] = [
        _head(watched), *map(_alarm, snapshot.alarms), _figures(vitals), _funnel(vitals), _sections(vitals),
        _proof(vitals), _processes(snapshot), *map(_change, snapshot.changes[:CHANGES_SHOWN]),
    ]  # fmt: skip
    return Group(*parts)


def _head(watched: Watched) -> Text:
    snapshot, vitals = watched.snapshot, watched.snapshot.vitals
    state = vitals.room.state or "state unknown"
    head = Text(snapshot.name, style="bold")
    head.truncate(NAME_MAX, overflow="ellipsis")
    head.append(f"  {state}  ", style="bold green" if state == "open" else "bold yellow")
    head.append(_clock(vitals.at_ms), style="dim")
    if not watched.connected:
        head.append("  no answer from the console", style="bold red")
    silent = [part for part, age in vitals.ages.items() if age is None or age > OLD_S]
    if silent:
        head.append(f"\nNo answer from {', '.join(silent)}: dim figures are old.", style="red")
    if vitals.without_reports:
        head.append(f"\nNot counted by {', '.join(vitals.without_reports)}: reports are off there.", style="yellow")
    if vitals.rate.why:
        head.append(f"\nCalls are held back: {vitals.rate.why}", style="yellow")
    if vitals.room.message:
        head.append(f"\nMessage to fans: {vitals.room.message}", style="italic")
    return head


def _alarm(alarm: ActiveAlarm) -> Text:
    return Text(f"{alarm.name}  {alarm.summary}, since {_clock(alarm.since_ms)}", style=COLOURS[alarm.severity])


def _figures(vitals: Vitals) -> Table:
    table = Table(box=box.SIMPLE, show_header=False, show_edge=False, padding=(0, 1), width=COLUMNS)
    for _ in range(3):
        table.add_column(width=LABEL_COLUMNS)
        table.add_column(width=VALUE_COLUMNS, justify="right")
    line, rate, stock, orders, wait = vitals.line, vitals.rate, vitals.stock, vitals.orders, vitals.wait
    sell, room = vitals.sell, vitals.room
    rows: tuple[tuple[tuple[Part, str, float | str | None], ...], ...] = (
        (
            ("queue", "Waiting", line.waiting), ("inventory", "Free", stock.free),
            ("orders", "Confirmed", orders.confirmed),
        ),
        (("queue", "Called", line.called), ("inventory", "Held", stock.held), ("orders", "Pending", orders.pending)),
        (("queue", "Claimed", line.claimed), ("inventory", "Sold", stock.sold), ("orders", "Due", orders.due)),
        (
            ("queue", "Rate set /s", rate.set_per_s), ("inventory", "Of", stock.total),
            ("orders", "In review", orders.in_review),
        ),
        (
            ("queue", "In force /s", rate.effective_per_s), ("queue", "Active", room.active),
            ("orders", "Sold /min", sell.per_min),
        ),
        (
            ("queue", "Called /s", rate.called_per_s), ("queue", "Of", room.max_active),
            ("orders", "Sold out in", _duration(sell.out_s)),
        ),
        (
            ("queue", "Claimed /s", rate.claimed_per_s), ("queue", "Wait p50", _duration(wait.p50_s)),
            ("orders", "earliest", _duration(sell.out_earliest_s)),
        ),
        (
            ("queue", "Missed", line.missed_calls), ("queue", "Wait p95", _duration(wait.p95_s)),
            ("orders", "latest", _duration(sell.out_latest_s)),
        ),
        (
            ("notifier", "Streams", vitals.streams.open), ("notifier", "Turned away", vitals.streams.turned_away),
            ("orders", "Oldest due", _duration(orders.oldest_due_s)),
        ),
    )  # fmt: skip
    for row in rows:
        table.add_row(*(text for part, name, value in row for text in (name, _value(vitals, part, value))))
    return table


def _value(vitals: Vitals, part: Part, value: float | str | None) -> Text:
    age = vitals.ages.get(part)
    return Text(_number(value), style="dim" if age is None or age > OLD_S else "bold")


def _funnel(vitals: Vitals) -> Text:
    return Text(" → ".join(f"{step.name} {_number(step.fans)}" for step in vitals.funnel))


def _sections(vitals: Vitals) -> Text:
    shown = vitals.stock.sections[:SECTIONS_SHOWN]
    text = "  ".join(f"{one.section_id} {one.free:,}/{one.free + one.held + one.sold:,}" for one in shown)
    more = len(vitals.stock.sections) - len(shown)
    return Text(f"Free: {text}" + (f"  and {more} more" if more > 0 else "") if shown else "", style="dim")


def _proof(vitals: Vitals) -> Text:
    proof = vitals.proof
    if proof.at_ms is None:
        return Text("Not proven yet", style="dim")
    counts = {
        "oversold": proof.oversold, "duplicates": proof.duplicates, "inversions": proof.inversions,
        "charged twice": proof.charged_twice,
    }  # fmt: skip
    words = " · ".join(f"{name} {_number(count)}" for name, count in counts.items())
    ago_s = max(0, vitals.at_ms - proof.at_ms) // 1000
    return Text(f"{words} · proven {ago_s} s ago", style="green" if not any(counts.values()) else "bold red")


def _processes(snapshot: Snapshot) -> Text:
    counts: dict[str, list[int]] = {}
    for process in snapshot.processes:
        of_service = counts.setdefault(process.service, [0, 0])
        of_service[process.state == "silent"] += 1
    words = (f"{name} {up}" + (f" ({silent} silent)" if silent else "") for name, (up, silent) in counts.items())
    return Text("Processes: " + ", ".join(words), style="dim")


def _change(change: Change) -> Text:
    reason = f": {change.reason}" if change.reason else ""
    line = f"{_clock(change.at_ms)} {change.actor} {change.action}{reason}"
    return Text(line, style="dim", overflow="ellipsis", no_wrap=True)


def _clock(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S} UTC"


def _number(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or "–"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s" if minutes else f"{left} s"
