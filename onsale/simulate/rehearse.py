"""`onsale rehearse`: a simulated sale against a copy of the event."""

import asyncio
import json
import sys
from collections.abc import Coroutine
from typing import Annotated, Any

import httpx
import typer
from rich.table import Table

from onsale.admin_client import AdminClient
from onsale.cli.context import EventId, for_suite, out, run_async, target
from onsale.errors import OperatorError
from onsale.simulate.command import Crowd, bars
from onsale.simulate.rehearsal import Rehearsal, default_arrival_s
from shared.contracts.admin.console import REHEARSAL_FANS_MAX, RehearsalResult

STOPPED = 3  # the exit code


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
