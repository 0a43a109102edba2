"""`onsale rehearse`: a rehearsal of an event. Its copy is made and opened, simulated fans buy there, and the copy is
closed, however it ends.

The copy has the same places, prices, limits and rate, and opens at once. What a simulated fan cannot pass, and what
would reach beyond the copy, is left out and said in words.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
import typer
from rich.table import Table

from features.console.schemas import REHEARSAL_FANS_MAX, FanView, RehearsalResult
from onsale.admin_client import AdminClient, NotFoundThere
from onsale.cli.context import EventId, for_suite, out, run_async, target
from onsale.errors import OperatorError
from onsale.simulate.command import Crowd, Report, bars
from shared.contracts.event_file import EventFile
from shared.contracts.ranking import JOINS
from shared.contracts.room_options import EntryRules, Lane

STOPPED = 3  # the exit code
COPIES_MAX = 99
JOINS_PER_S, JOINS_AT_ONCE, ARRIVE_OVER_LEAST_S = 40.0, 400, 5.0  # below the gateway's limits of one address
STREAMS = 100
VISIBLE_WITHIN_S, SETTLED_WITHIN_S, STEP_S = 20.0, 15.0, 0.25
Announce = Callable[[str, list[str]], None]
EVENT_ID_MAX, NAME_MAX = 32, 200
MARK, NAME_MARK = "-rehearsal", " (rehearsal)"


def copy_id(event_id: str, number: int) -> str:
    """The id of the event's copy of this number: `arena-rehearsal`, `arena-rehearsal-2`. A long id is cut."""
    suffix = MARK if number == 1 else f"{MARK}-{number}"
    return event_id[: EVENT_ID_MAX - len(suffix)] + suffix


def copy_of(event: EventFile, event_id: str) -> tuple[EventFile, list[str]]:
    """The copy's event file, and what was left out of it."""
    room, sales, left_out = event.room, event.sales, event.room.left_out_of_rehearsals()
    general = next(lane for lane in room.lanes if lane.lane == 0)
    times = room.queue_opens_at, room.sale_starts_at, room.sale_ends_at, general.opens_at
    reasons = {
        "the times of the sale: the copy opens at once": any(times),
        "the lanes " + ", ".join(lane.name for lane in room.lanes if lane.lane)
        + ": simulated fans have no code and no claim": len(room.lanes) > 1,
        "sign-in: simulated fans have no account": room.entry.signed_in_only,
        "the limit over the tour": sales.tour is not None,
        "the lanes of price types: whoever came may buy these": any(kind.lanes for kind in event.price_types),
    }  # fmt: skip
    rehearsed = room.model_copy(update={
        "queue_opens_at": None, "sale_starts_at": None, "sale_ends_at": None, "ordering": JOINS,
        "lanes": (Lane(**{**dict(general), "opens_at": None}),), "entry": EntryRules(),
        **{each.field: each.value for each in left_out},
    })  # fmt: skip
    copied = event.model_copy(update={
        "price_types": [kind.model_copy(update={"lanes": []}) for kind in event.price_types],
        "event_id": event_id, "name": event.name[: NAME_MAX - len(NAME_MARK)] + NAME_MARK, "rehearsal": True,
        "room": rehearsed, "sales": sales.model_copy(update={"tour": None}),
    })  # fmt: skip
    words = [*(words for words, applies in reasons.items() if applies), *(each.why for each in left_out)]
    return EventFile.model_validate(copied.model_dump()), words


def default_arrival_s(fans: int) -> float:
    """Seconds over which so many fans can come from one address without being refused."""
    return max(ARRIVE_OVER_LEAST_S, (fans - JOINS_AT_ONCE) / JOINS_PER_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """One rehearsal of an event by so many fans."""

    admin: AdminClient
    url: str
    event_id: str
    fans: int
    seed: int
    arrive_over_s: float
    reason: str

    async def run(self, announce: Announce, report: Report) -> tuple[Crowd, RehearsalResult]:
        """Raises `OperatorError`, and then nothing was sold: if the event is a rehearsal itself, or if anything but the
        sandbox takes payments. `announce` hears the copy's id and what it leaves out.
        """
        event = await self.admin.event_file(self.event_id)
        if event.rehearsal:
            raise OperatorError(f"{self.event_id} is the copy of a rehearsal itself.")
        copy, left_out = copy_of(event, await self._free_id())
        announce(copy.event_id, left_out)
        pictures = await self.admin.pictures(self.event_id, copy.files)
        await self.admin.apply(copy, pictures=pictures)
        crowd = Crowd(
            self.url, copy.event_id, fans=self.fans, arrive_over_s=self.arrive_over_s, seed=self.seed,
            streams=min(STREAMS, self.fans), codes=[code for kind in copy.price_types for code in kind.codes],
        )  # fmt: skip
        try:
            await self.admin.set_room_state(copy.event_id, "open", {"reason": self.reason})
            await self._wait_until_visible(copy.event_id)
            await crowd.run(report)
        finally:
            await self.admin.set_room_state(copy.event_id, "close", {"reason": "The rehearsal is over"})
        return crowd, await self._result(copy.event_id, crowd)

    async def _free_id(self) -> str:
        for number in range(1, COPIES_MAX + 1):
            wanted = copy_id(self.event_id, number)
            try:
                await self.admin.read_inventory_event(wanted)
            except NotFoundThere:
                return wanted
        raise OperatorError(f"{self.event_id} was rehearsed {COPIES_MAX} times; no further copy has a name.")

    async def _wait_until_visible(self, event_id: str) -> None:
        """Every process learns of a new event within a second."""
        deadline_s = asyncio.get_running_loop().time() + VISIBLE_WITHIN_S
        while not await self._is_visible(event_id):
            if asyncio.get_running_loop().time() > deadline_s:
                raise OperatorError(f"The copy {event_id} did not open within {VISIBLE_WITHIN_S:.0f} s.")
            await asyncio.sleep(STEP_S)
        await asyncio.sleep(1)

    async def _is_visible(self, event_id: str) -> bool:
        try:
            await self.admin.read_event_on_sale(event_id)
            view: FanView = await self.admin.read_preview(event_id, position=1)
        except OperatorError:
            return False
        return view.state == "open"

    async def _result(self, event_id: str, crowd: Crowd) -> RehearsalResult:
        waits: dict[str, float | None] = {"wait_p50_s": None, "wait_p95_s": None}
        with suppress(NotFoundThere):  # without the feature `reports` the queue counts no waits
            wait = (await self.admin.read_queue_flow(event_id)).wait
            waits = {"wait_p50_s": wait.p50_s, "wait_p95_s": wait.p95_s}
        checked, broken = await self._invariants(event_id)
        found: dict[str, Any] = crowd.result()
        names = RehearsalResult.model_fields.keys() & found.keys()
        return RehearsalResult(
            **{name: found[name] for name in names - {"failures"}}, failures=found["failures"], **waits,
            invariants=checked, broken=broken,
        )  # fmt: skip

    async def _invariants(self, event_id: str) -> tuple[int, list[str]]:
        """How many were checked, and those that do not hold once the last payments are through."""
        deadline_s = asyncio.get_running_loop().time() + SETTLED_WITHIN_S
        while True:
            rows = await self.admin.audit(event_id)
            broken = [f"{row.service}: {row.invariant}: {row.detail}" for row in rows if not row.holds]
            if not broken or asyncio.get_running_loop().time() > deadline_s:
                return len(rows), broken
            await asyncio.sleep(1)


@for_suite
def rehearse(
    event_id: EventId,
    fans: Annotated[int, typer.Option(min=1, max=REHEARSAL_FANS_MAX, help="How many fans come.")] = 2000,
    arrive_over: Annotated[
        float | None, typer.Option(min=0, help="Seconds over which they arrive; by default as fast as one address may.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same fans.")] = 1,
    reason: Annotated[str, typer.Option("--reason", help="Kept in the audit log.")] = "A rehearsal",
    supervised: Annotated[
        bool,
        typer.Option(
            "--supervised", help="For programs: writes each state as a line of JSON, and stops when its input ends."
        ),
    ] = False,
) -> None:
    """Rehearse a sale: send simulated fans through a copy of the event, then close the copy.

    Needs an admin key. The copy has the same places, prices, limits and rate, and opens at once; no list shows it
    to fans, and nobody gets mail. It is refused unless the sandbox is the only payment provider. Ctrl-C stops it
    and closes the copy.

    Exit code 1 if an invariant does not hold, or if a request failed that should not have.

    Example: onsale rehearse arena-2026 --fans 2000
    """
    arrive_over_s = default_arrival_s(fans) if arrive_over is None else arrive_over
    wanted = {"event_id": event_id, "fans": fans, "seed": seed, "arrive_over_s": arrive_over_s, "reason": reason}
    if supervised:
        result = run_async(_until_input_ends(_run_in_lines(wanted)))
        if result is None:
            raise typer.Exit(STOPPED)
    else:
        crowd, result = _run_on_screen(wanted)
        out.print(_table(crowd, result), crowd.times())
        for failure in [*result.failures, *result.broken]:
            out.print(f"[red]failed:[/] {failure}")
    if result.failures or result.broken:
        raise typer.Exit(1)


def _run_on_screen(wanted: dict[str, Any]) -> tuple[Crowd, RehearsalResult]:
    def announce(copy: str, left_out: list[str]) -> None:
        out.print(f"The copy is {copy}.", *(f"Left out: {words}." for words in left_out), sep="\n", soft_wrap=True)

    with bars(out, wanted["fans"]) as report:
        return run_async(_rehearse(wanted, announce, report))


async def _run_in_lines(wanted: dict[str, Any]) -> RehearsalResult:
    last: dict[str, int] = {}

    def report(counts: Any) -> None:
        nonlocal last
        if counts != last:
            last = dict(counts)
            _write_line({"progress": last})

    def announce(copy: str, left_out: list[str]) -> None:
        _write_line({"copy_id": copy, "left_out": left_out})

    _, result = await _rehearse(wanted, announce, report)
    _write_line({"result": result.model_dump(mode="json")})
    return result


async def _rehearse(wanted: dict[str, Any], announce: Any, report: Any) -> tuple[Crowd, RehearsalResult]:
    url = target().url
    async with httpx.AsyncClient(trust_env=False, verify=not url.startswith("http:")) as client:
        admin = AdminClient(client, url, target().admin_key)
        return await Rehearsal(admin=admin, url=url, **wanted).run(announce, report)


async def _until_input_ends(work: Coroutine[Any, Any, RehearsalResult]) -> RehearsalResult | None:
    """What the work answers; None if the input ended first, and then the work was cancelled."""
    running, ended = asyncio.ensure_future(work), asyncio.ensure_future(_input_end())
    try:
        await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        running.cancel()
        try:
            return await running
        except asyncio.CancelledError:
            return None
    finally:
        ended.cancel()


async def _input_end() -> None:
    reader = asyncio.StreamReader()
    try:
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
        )
    except (OSError, ValueError) as unfit:
        raise OperatorError("--supervised needs a pipe as its input.") from unfit
    while await reader.read(1024):
        pass


def _write_line(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _table(crowd: Crowd, result: RehearsalResult) -> Table:
    table = crowd.table()
    for name, seconds in (("half waited at most", result.wait_p50_s), ("95 % waited at most", result.wait_p95_s)):
        table.add_row(name, "-" if seconds is None else f"{seconds:.1f} s")
    table.add_row("invariants that hold", f"{result.invariants - len(result.broken)} of {result.invariants}")
    return table
