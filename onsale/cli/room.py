"""`onsale room`: show and control the waiting room of an event."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from onsale.admin_client import AdminClient
from onsale.cli.context import (
    AdminCommands,
    Before,
    EventId,
    Reason,
    add_action,
    changed_values,
    out,
    print_page,
    to_second,
    with_admin,
)  # fmt: skip

if TYPE_CHECKING:
    from shared.contracts.admin.audit import AuditEntry
    from shared.contracts.admin.queue import LaneView

Switch = Annotated[str | None, typer.Option(help="on, observe or off.")]
Count = Annotated[int, typer.Argument(min=1, max=2000, help="How many fans to call.")]
EVENT = {"event_id": EventId}
CHANGES_SHOWN = 40
ACTIONS = {
    "open": "Open the waiting room: fans can join, and calls begin when the sale starts.",
    "pause": "Pause calls; fans keep their places and may still join.",
    "resume": "Resume calls at the room's rate. Calls missed in the pause are not made up for.",
    "drain": "Let nobody join any more; fans in the line are still called.",
    "close": "Close the waiting room: nobody joins and nobody is called.",
}
app = AdminCommands(help="Show and control the waiting room of an event.")


@app.command("show")
def show(event_id: EventId) -> None:
    """Show the waiting room's settings, its state and the lanes of its line."""
    room = with_admin(lambda admin: admin.read_room(event_id))
    table = Table(show_header=False, title=event_id)
    for name, value in room.model_dump(mode="json", exclude={"lanes"}).items():
        table.add_row(name, str(value))
    out.print(table, _lanes(room.lanes))


def _lanes(lanes: "Mapping[int, LaneView]") -> Table:
    """The calls of each lane beside its share by weight. Contended calls were made in ticks in which every lane had
    fans to call: only those show the share.
    """
    table = Table("lane", "name", "weight", "waiting", "calls", "contended calls", "fair share", title="Lanes")
    total = sum(lane.weight for lane in lanes.values())
    for number, lane in lanes.items():
        waiting = max(0, lane.tail_seq - lane.head_seq)
        weight = f"{lane.weight} ({lane.weight / total:.0%})"
        row = (
            number, lane.name, weight, waiting, lane.calls, lane.contended_calls, f"{lane.fair_share:.1f}",
        )  # fmt: skip
        table.add_row(*map(str, row))
    return table


@app.command("set")
def set_values(
    event_id: EventId,
    rate: Annotated[float | None, typer.Option(min=0, help="Admissions per second; 0 calls nobody.")] = None,
    burst: Annotated[int | None, typer.Option(min=1, help="Calls that may come at once.")] = None,
    max_active: Annotated[
        int | None, typer.Option(min=0, help="Most fans inside at once, those just called included.")
    ] = None,
    rollout: Annotated[
        float | None, typer.Option(min=0, max=100, help="Percent of fans who go through the waiting room.")
    ] = None,
    reason: Reason = "onsale room set",
) -> None:
    """Set the admission rate and its limits. The next tick (0.2 s) applies them.

    Example: onsale room set arena-2026 --rate 100 --max-active 500
    """
    values = changed_values(
        {"rate_per_s": rate, "burst": burst, "max_active": max_active, "rollout_percent": rollout},
        "--rate, --burst, --max-active or --rollout",
    )
    with_admin(lambda admin: admin.change_room(event_id, {**values, "reason": reason}))
    out.print(f"{event_id}: {', '.join(f'{name} = {value:g}' for name, value in values.items())}")


for _action, _about in ACTIONS.items():
    add_action(
        app, _action, "set_room_state", EVENT, "{event_id}: {action}", about=_about, reason=f"onsale room {_action}",
        action=_action,
    )  # fmt: skip
add_action(
    app, "rebuild", "rebuild_room", EVENT, "{event_id}: rebuilt from PostgreSQL",
    about="Rebuild the line in Redis from PostgreSQL. Places, order and passes stay; the rate ramps up over 30 s.",
    reason="onsale room rebuild",
)  # fmt: skip
add_action(
    app, "admit", "admit", EVENT | {"count": Count}, "{event_id}: {answer.called} of {answer.asked} called",
    about="""Call the next fans now, beyond the rate and also while paused, but never beyond max_active or the stock.

    Example: onsale room admit arena-2026 20
    """,
    reason="onsale room admit",
)  # fmt: skip


@app.command("reset")
def reset(
    event_id: EventId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    reason: Reason = "onsale room reset",
) -> None:
    """Reset the line: every place, queue token and pass of the old line becomes invalid."""
    if not yes and not typer.confirm(f"Every fan in the line of {event_id} loses their place. Continue?"):
        raise typer.Exit(1)
    with_admin(lambda admin: admin.reset_room(event_id, {"reason": reason}))
    out.print(f"{event_id}: the line starts anew")


@app.command("message")
def message(
    event_id: EventId,
    text: Annotated[str, typer.Argument(help="Shown to every fan in the line; an empty text removes the message.")],
    reason: Reason = "onsale room message",
) -> None:
    """Set or remove the message that fans in the line read.

    Example: onsale room message arena-2026 "We go on at 20:15."
    """
    with_admin(lambda admin: admin.set_message(event_id, {"message": text or None, "reason": reason}))
    out.print(f"{event_id}: {text or 'no message'}")


@app.command("pace")
def pace(
    event_id: EventId,
    guard: Switch = None,
    autotune: Switch = None,
    rate_min: Annotated[float | None, typer.Option(help="Autotune never sets a lower rate.")] = None,
    rate_max: Annotated[float | None, typer.Option(help="Autotune never sets a higher rate.")] = None,
    slow_ms: Annotated[int | None, typer.Option(help="A hold or order that takes longer counts as overload.")] = None,
    reason: Reason = "onsale room pace",
) -> None:
    """Set how the rate is adjusted automatically: the overload guard, and autotune between two rates.

    Example: onsale room pace arena-2026 --autotune on --rate-min 20 --rate-max 200
    """
    values = changed_values(
        {"guard": guard, "autotune": autotune, "rate_min": rate_min, "rate_max": rate_max, "slow_ms": slow_ms},
        "--guard, --autotune, --rate-min, --rate-max or --slow-ms",
    )

    async def change(admin: AdminClient) -> None:
        now = (await admin.read_room(event_id)).pace
        await admin.change_room(event_id, {"pace": {**now.model_dump(), **values}, "reason": reason})

    with_admin(change)
    out.print(f"{event_id}: {', '.join(f'{name} = {value}' for name, value in values.items())}")


@app.command("history")
def history(
    event_id: EventId,
    count: Annotated[int, typer.Option(min=1, max=200, help="How many changes, newest first.")] = CHANGES_SHOWN,
    before: Before = None,
) -> None:
    """List the changes to the waiting room: when, who, what and why."""
    found = with_admin(lambda admin: admin.list_queue_changes(event_id, before=before, page_size=count))
    print_page(found, ("when", "who", "what", "change", "why"), (
        (to_second(change.at), change.actor, change.action, _differences(change), change.reason or "")
        for change in found.changes
    ), title=event_id)  # fmt: skip


def _differences(change: "AuditEntry") -> str:
    """The values that differ, as `name: before → after`; nothing for a new room."""
    before, after = change.before, change.after
    if before is None or after is None:
        return ""
    differ = [name for name in after if before.get(name) != after[name] and name != "version"]
    return ", ".join(f"{name}: {before.get(name, '-')} → {after[name]}" for name in differ)
