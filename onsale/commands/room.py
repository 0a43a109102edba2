"""`onsale room …` beyond opening and closing: drain, rebuild, admit, reset, message, pace, plan, history."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from onsale.commands.client import Admin, Refused

Ask = Callable[[Admin], Coroutine[Any, Any, Any]]
Run = Callable[[str | None, Path, Ask], Any]
EventId = Annotated[str, typer.Argument(metavar="EVENT_ID", help="The event, as in its file.")]
Url = Annotated[str | None, typer.Option("--url", help="Where the suite answers; as its data directory says.")]
DataDir = Annotated[Path, typer.Option("--data-dir", help="Engines' data, keys and logs.")]
Reason = Annotated[str, typer.Option(help="Kept in the audit trail.")]
Switch = Annotated[str | None, typer.Option(help="on, observe or off.")]
DATA_DIR = Path(".onsale")
SHOWN_MAX = 40


def add_steering(room: typer.Typer, out: Console, run: Run) -> None:
    """Adds the commands to `onsale room`. `run` asks the suite that is meant."""
    _add_acts(room, out, run)
    _add_pace(room, out, run)
    _add_looks(room, out, run)


def _add_acts(room: typer.Typer, out: Console, run: Run) -> None:
    @room.command("rebuild")
    def rebuild(
        event_id: EventId, reason: Reason = "onsale room rebuild", url: Url = None, data_dir: DataDir = DATA_DIR
    ) -> None:
        """Rebuild Redis from the database by hand: places, order and passes stay, the rate ramps up in 30 s."""
        run(url, data_dir, lambda admin: admin.act(event_id, "rebuild", reason=reason))
        out.print(f"{event_id}: filled from the ledger")

    @room.command("admit")
    def admit(
        event_id: EventId,
        count: Annotated[int, typer.Argument(min=1, max=2000, help="How many to call.")],
        reason: Reason = "onsale room admit",
        url: Url = None,
        data_dir: DataDir = DATA_DIR,
    ) -> None:
        """Call the next fans beyond the rate, now, in a paused room too; never beyond max_active or the stock."""
        done = run(
            url, data_dir, lambda admin: admin.call("POST", _at(event_id, "room/admit"), _reasoned(reason, count))
        )
        out.print(f"{event_id}: {done['called']} of {done['asked']} called")

    @room.command("reset")
    def reset(
        event_id: EventId,
        yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
        reason: Reason = "onsale room reset",
        url: Url = None,
        data_dir: DataDir = DATA_DIR,
    ) -> None:
        """Reset the queue: every place, queue token and pass of the old line is dead."""
        if not yes and not typer.confirm(f"Everybody in the line of {event_id} loses their place. Go on?"):
            raise typer.Exit(1)
        run(url, data_dir, lambda admin: admin.act(event_id, "reset", reason=reason))
        out.print(f"{event_id}: the line starts anew")

    @room.command("message")
    def message(
        event_id: EventId,
        text: Annotated[str, typer.Argument(help="What everybody in the line reads; empty takes it away.")],
        reason: Reason = "onsale room message",
        url: Url = None,
        data_dir: DataDir = DATA_DIR,
    ) -> None:
        """Set the queue message."""
        run(url, data_dir, lambda admin: admin.act(event_id, "message", message=text or None, reason=reason))
        out.print(f"{event_id}: {text or 'no message'}")


def _add_pace(room: typer.Typer, out: Console, run: Run) -> None:
    @room.command("pace")
    def pace(
        event_id: EventId,
        guard: Switch = None,
        autotune: Switch = None,
        rate_min: Annotated[float | None, typer.Option(help="Autotune never sets less.")] = None,
        rate_max: Annotated[float | None, typer.Option(help="Autotune never sets more.")] = None,
        slow_ms: Annotated[int | None, typer.Option(help="A hold or order slower than this is overload.")] = None,
        reason: Reason = "onsale room pace",
        url: Url = None,
        data_dir: DataDir = DATA_DIR,
    ) -> None:
        """How the room looks after its own rate: the overload guard, and autotune within bounds."""
        asked = {"guard": guard, "autotune": autotune, "rate_min": rate_min, "rate_max": rate_max, "slow_ms": slow_ms}
        values = {name: value for name, value in asked.items() if value is not None}
        if not values:
            raise Refused("Say what to set: --guard, --autotune, --rate-min, --rate-max or --slow-ms.")

        async def change(admin: Admin) -> None:
            now = (await admin.room(event_id))["pace"]
            await admin.change_room(event_id, pace={**now, **values}, reason=reason)

        run(url, data_dir, change)
        out.print(f"{event_id}: {', '.join(f'{name} = {value}' for name, value in values.items())}")


def _add_looks(room: typer.Typer, out: Console, run: Run) -> None:
    @room.command("plan")
    def plan(
        event_id: EventId,
        rate: Annotated[float | None, typer.Option(min=0.001, help="Admissions per second to try.")] = None,
        max_active: Annotated[int | None, typer.Option(min=1, help="Fans inside at most, to try.")] = None,
        url: Url = None,
        data_dir: DataDir = DATA_DIR,
    ) -> None:
        """When would the line as it is now be drained with these values? Nothing is changed."""
        asked = {"rate_per_s": rate, "max_active": max_active}
        wish = {name: value for name, value in asked.items() if value is not None}
        found = run(url, data_dir, lambda admin: admin.call("POST", _at(event_id, "room/plan"), wish))
        out.print(found["sentence"], soft_wrap=True)

    @room.command("history")
    def history(
        event_id: EventId,
        count: Annotated[int, typer.Option(min=1, max=200, help="How many changes, newest first.")] = SHOWN_MAX,
        url: Url = None,
        data_dir: DataDir = DATA_DIR,
    ) -> None:
        """List audit log entries."""
        path = _at(event_id, f"changes?page_size={count}")
        table = Table("when", "who", "what", "change", "why", title=event_id)
        for change in run(url, data_dir, lambda admin: admin.call("GET", path))["changes"]:
            row = (change["at"][:19].replace("T", " "), change["actor"], change["action"], _told(change))
            table.add_row(*row, change["reason"] or "")
        out.print(table)


def _at(event_id: str, what: str) -> str:
    return f"/admin/queue/events/{event_id}/{what}"


def _reasoned(reason: str, count: int) -> dict[str, Any]:
    return {"count": count, "reason": reason}


def _told(change: dict[str, Any]) -> str:
    """The values that differ, in a few words; a new room is not told value by value."""
    before, after = change["before"], change["after"]
    if before is None:
        return ""
    differ = [name for name in after if before.get(name) != after[name] and name != "version"]
    return ", ".join(f"{name}: {before.get(name, '-')} → {after[name]}" for name in differ)
