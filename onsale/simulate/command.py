"""`onsale simulate`: sends simulated fans through an on-sale and checks what they observed against the guarantees."""

import asyncio
import gc
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from onsale.cli.context import DATA_DIR, DataDir, Url, run_async
from onsale.client import Problem
from onsale.client.connection import NO_ANSWER
from onsale.client.fan_documents import EventDetails
from onsale.data_dir import suite_url
from onsale.errors import OperatorError
from onsale.history.transport import History
from onsale.simulate.browser import PATIENCE_S, Browser, CallTimes
from onsale.simulate.observations import CALM, WILD, Observations, Profile, wrong_books
from onsale.simulate.visit import Visit
from shared.http.http1 import HttpClient

CONNECTIONS_MAX = 256
STREAMS_MAX = 500
REDRAW_S = 0.2
OBJECTS_UNCHECKED_MAX = 100_000
SHARE_CODES = 0.3
STAGES = ("joined", "called", "held", "bought")
Report = Callable[[Mapping[str, int]], None]


def simulate(
    event_id: Annotated[str, typer.Option(help="The event's id.")],
    fans: Annotated[int, typer.Option(min=1, max=200_000, help="How many fans come.")] = 1000,
    arrive_over: Annotated[float, typer.Option(min=0, help="Seconds over which they arrive.")] = 5.0,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
    seed: Annotated[int, typer.Option(help="The same seed gives the same fans.")] = 1,
    streams: Annotated[
        int, typer.Option(min=0, max=STREAMS_MAX, help="Fans with a live stream; the others poll.")
    ] = 100,
    chaos: Annotated[
        bool,
        typer.Option(
            "--chaos", help="Let payments fail in every way, and check at the end what fans were told, all charges too."
        ),
    ] = False,
    code: Annotated[
        list[str] | None, typer.Option(help="A code that some fans know: for price types and stock. May repeat.")
    ] = None,
    access_codes: Annotated[
        Path | None, typer.Option(help="A file of access codes, as `onsale codes create` writes it: one for each fan.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result to this file as JSON.")] = None,
    history: Annotated[
        Path | None, typer.Option(help="Append what the fans are told to this file, for `onsale check-history`.")
    ] = None,
) -> None:
    """Simulate an on-sale: send fans through it over real HTTP and SSE.

    Exit code 1 if an invariant does not hold, if a request failed that should not have, or if nobody could join.
    --chaos reads the databases and the provider's list of charges, as `onsale check-history` does.

    Example: onsale simulate --event-id arena-2026 --fans 2000 --chaos
    """
    out, url = Console(highlight=False), url or suite_url(data_dir)
    lane_codes = access_codes.read_text().split() if access_codes else []
    with TemporaryDirectory() as folder:
        kept = history or (Path(folder) / "history.jsonl" if chaos else None)
        crowd = Crowd(
            url, event_id, fans=fans, arrive_over_s=arrive_over, seed=seed, streams=streams,
            profile=WILD if chaos else CALM, history=History(kept) if kept else None, codes=code or [],
            access_codes=lane_codes,
        )  # fmt: skip
        with bars(out, fans) as report:
            run_async(crowd.run(report))
        wrong = run_async(wrong_books(url, data_dir, event_id, kept)) if chaos and kept else []
    out.print(crowd.table(), crowd.times())
    if json_file:
        result = crowd.result() | ({"books_wrong": wrong} if chaos else {})
        json_file.write_text(json.dumps(result, indent=2) + "\n")
    failures = [*crowd.observations.failures, *wrong]
    for failure in failures:
        out.print(f"[red]failed:[/] {failure}", soft_wrap=True)
    if failures:
        raise typer.Exit(1)


@contextmanager
def bars(out: Console, fans: int) -> Iterator[Report]:
    """Draws a bar for each stage, as far as it is reported."""
    columns = (TextColumn("{task.description:>8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, auto_refresh=False) as progress:
        tasks = {stage: progress.add_task(stage, total=fans) for stage in STAGES}

        def report(counts: Mapping[str, int]) -> None:
            for stage, count in counts.items():
                progress.update(tasks[stage], completed=count)
            progress.refresh()

        yield report


@asynccontextmanager
async def rare_collections() -> AsyncIterator[None]:
    """The garbage collector runs only once there are so many new objects. What fans leave behind refers to itself
    nowhere, so it would check all who wait again and again and find nothing, for a fifth of the processor time.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(OBJECTS_UNCHECKED_MAX, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class Crowd:
    """All fans of one simulation, and what they observed. The first have one of the `access_codes` each, which open
    lanes; they and some of the others know one of the `codes`, which open price types and stock.
    """

    connections_max = CONNECTIONS_MAX

    def __init__(
        self, url: str, event_id: str, *, fans: int, arrive_over_s: float, seed: int, streams: int,
        profile: Profile = CALM, history: History | None = None, codes: Sequence[str] = (),
        access_codes: Sequence[str] = (), customers: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._history, self._codes, self._access_codes = history, codes, access_codes
        self._customers = customers
        self._url, self._event_id, self._fans, self._profile = url.rstrip("/"), event_id, fans, profile
        self._arrive_over_s, self._seed, self._streams = arrive_over_s, seed, streams
        self.calls, self.observations = CallTimes(), Observations()
        self._took_s = self._cpu_s = 0.0

    async def run(self, report: Report) -> None:
        """Sends all fans; `report` hears several times a second how many have reached each stage."""
        from onsale.simulate.streams import CrowdStreams  # slow to import

        rng = random.Random(self._seed)  # noqa: S311 - a simulation, not a secret
        connections = HttpClient(connections_max=self.connections_max)
        async with rare_collections(), connections as http, CrowdStreams(connect_s=PATIENCE_S) as streams:
            browser = Browser(http, streams, self._url, self.calls, rng, history=self._history)
            event = await self._event(browser)
            self.observations.capacity = sum(section["capacity"] for section in event["sections"])
            started, started_cpu_s = time.monotonic(), time.process_time()
            crowd = asyncio.gather(*self._fans_lives(event, browser, rng))
            try:
                while not crowd.done():
                    await asyncio.wait({crowd}, timeout=REDRAW_S)
                    report({stage: getattr(self.observations, stage) for stage in STAGES})
                crowd.result()
            finally:
                crowd.cancel()  # all fans go before their connections do
                await asyncio.gather(crowd, return_exceptions=True)
                self._took_s = time.monotonic() - started
                self._cpu_s = time.process_time() - started_cpu_s

    async def _event(self, browser: Browser) -> EventDetails:
        try:
            return await browser.event(self._event_id)
        except Problem as problem:
            if problem.status == NO_ANSWER:
                raise OperatorError(f"No suite answers at {self._url}: is `onsale up` running?") from problem
            raise OperatorError(f"{self._url} has no event {self._event_id}.") from problem

    def _fans_lives(self, event: EventDetails, browser: Browser, rng: random.Random) -> list[Coroutine[Any, Any, None]]:
        lives = []
        for number in range(self._fans):
            watches = number * self._streams % self._fans < self._streams  # spread evenly over the crowd
            seed = rng.getrandbits(64)
            access_code = self._access_codes[number] if number < len(self._access_codes) else None
            knows = self._codes and (access_code is not None or rng.random() < SHARE_CODES)
            visit = Visit(
                event, browser, self.observations, seed=seed, watches=watches, profile=self._profile,
                access_code=access_code, code=rng.choice(self._codes) if knows else None,
                email=rng.choice(self._customers) if self._customers else None,
            )  # fmt: skip
            lives.append(visit.live(arrive_after_s=self.arrives_after_s(number, rng)))
        return lives

    def arrives_after_s(self, number: int, rng: random.Random) -> float:
        """When the fan of this number comes: at a random moment."""
        return rng.uniform(0, self._arrive_over_s)

    def result(self) -> dict[str, Any]:
        counts = self.observations
        return {
            "event_id": self._event_id, "fans": self._fans, "seconds": round(self._took_s, 2),
            "cpu_s": round(self._cpu_s, 2),
            "joined": counts.joined, "called": counts.called, "held": counts.held, "bought": counts.bought,
            "gave_up": counts.gave_up, "empty_handed": counts.empty_handed,
            "tickets_sold": counts.tickets_sold, "capacity": counts.capacity,
            "sold_by_type": dict(counts.sold_by_type), "minor_by_type": dict(counts.minor_by_type),
            "ordered_minor": counts.ordered_minor,
            "oversold": counts.oversold, "inversions": counts.inversions, "duplicate_numbers": counts.duplicate_numbers,
            "went_home": dict(counts.refused), "failed": dict(counts.failed), "failures": counts.failures,
            "calls_ms": {name: self.calls.summary(name) for name in sorted(self.calls.times_ms)},
            "server_errors": sum(n for (_, status), n in self.calls.endings.items() if status >= 500 or status == 0),
        }  # fmt: skip

    def table(self) -> Table:
        result, table = self.result(), Table(title=f"{self._fans} fans, {self._took_s:.1f} s", show_header=False)
        for name in ("joined", "called", "held", "bought", "gave_up", "empty_handed"):
            table.add_row(name.replace("_", " "), str(result[name]))
        table.add_row("tickets sold", f"{result['tickets_sold']} of {result['capacity']}")
        for type_id, count in self.observations.sold_by_type.most_common():
            table.add_row(f"of them {type_id}", str(count))
        for name in ("oversold", "inversions", "duplicate_numbers"):
            colour = "red" if result[name] else "green"
            table.add_row(name.replace("_", " "), f"[{colour}]{result[name]}[/] (must be 0)")
        for why, count in sorted(self.observations.failed.items()):
            table.add_row(f"[yellow]{why}[/]", str(count))
        return table

    def times(self) -> Table:
        """What each call took, from when a fan wanted it."""
        table = Table("call", "n", "p50 ms", "p95 ms", "p99 ms", "answers")
        for name in sorted(self.calls.times_ms):
            found = self.calls.summary(name)
            times = (f"{found[each]:.1f}" for each in ("p50", "p95", "p99"))
            table.add_row(name, str(found["n"]), *times, " ".join(f"{s}:{n}" for s, n in found["answers"].items()))
        return table
