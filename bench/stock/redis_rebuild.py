"""How long nobody can buy after Redis lost everything, for 100,000 seats and for a million.

One inventory process on databases that force everything to disk; a tenth of the seats is sold, a twentieth held. After
`FLUSHALL` a fan requests a free seat again and again until it is granted. Reading the database is timed separately, and
so is the audit afterwards.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import NamedTuple

import httpx

from bench.harness.measurement import CheckFailed, Claim, Effort, Figures, Finding, Testbed, Trial
from bench.stock.reservations import reservation_request
from onsale.local.ports import HOST
from onsale.server.pauses import short_pauses
from services.inventory.app import create_app
from services.inventory.reconcile.invariants import check_invariants
from services.inventory.redis_stock import rebuild
from services.inventory.settings import Settings
from services.inventory.state import State
from services.inventory.store.snapshot import read_stock
from shared.contracts.event_file import EventFile, SeatedSection
from shared.postgres.engine import raw_statement
from shared.postgres.migrations import upgrade
from shared.security.auth import AdminKeys
from shared.web.app import public
from shared.web.parts import with_settings_of_parts

SEATS, QUICK_SEATS = {100_000: "under 1.5 s", 1_000_000: "under 10 s, aim 5 s"}, {4_000: "under 1.5 s"}
HEADINGS = ("seats", "round", "sells again, s", "ledger read, s", "gate filled and sold, s", "answered 503", "audit, s")
LOADING_MAX_S = 300
ROWS, SEATS_PER_ROW = 40, 50
ADMIN_SECRET = "only-for-this-measurement"
SOLD, HELD = 0.10, 0.05
SELL = raw_statement(__package__, "sell")


class RebuildTimes(NamedTuple):
    """Seconds until a hold is granted again, of these for reading the database and for filling Redis, and how many
    requests were refused with 503 meanwhile.
    """

    back_s: float
    read_s: float
    fill_s: float
    refused: int


def reopen() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="Reopen",
        title="after the engine lost everything",
        settings=[
            f"One inventory process; {' or '.join(f'{n:,}' for n in SEATS)} seats in blocks of "
            f"{ROWS * SEATS_PER_ROW:,}, {SOLD:.0%} sold and {HELD:.0%} held; `VACUUM ANALYZE` before the first loss.",
            "From `FLUSHALL` until the next fan's request for one free seat, repeated every 10 ms, is answered 201. "
            "Reading the ledger and filling the gate are parts of it; the rest is noticing and raising the epoch. The "
            "audit compares gate and ledger once the gate is open again.",
        ],
        find=find,
    )


def event(seats: int) -> EventFile:
    """An event with `seats` seats in sections of two thousand."""
    blocks = [
        SeatedSection(section_id=f"S{n}", name=f"Block {n}", kind="seated", rows=ROWS, seats_per_row=SEATS_PER_ROW,
                      price_minor=5000)
        for n in range(max(1, seats // (ROWS * SEATS_PER_ROW)))
    ]  # fmt: skip
    start = datetime(2030, 1, 1, tzinfo=UTC)
    return EventFile(event_id="bench", name="Lost", venue="Here", currency="EUR", starts_at=start, sections=blocks)


@asynccontextmanager
async def selling(trial: Trial, file: EventFile) -> AsyncIterator[tuple[State, httpx.AsyncClient]]:
    """Inventory with the event on sale, part of it sold and held."""
    await upgrade(trial.postgres_url, "inventory")
    settings = with_settings_of_parts(Settings, "inventory")(
        postgres_url=trial.postgres_url, redis_url=trial.redis_url, admin_keys=AdminKeys(f"bench:admin:{ADMIN_SECRET}"),
        log_requests=False,
    )  # fmt: skip
    app = create_app(settings)
    async with (
        short_pauses(),  # as every process of the suite does
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url=f"http://{HOST}") as fans,
    ):
        path, head = f"/admin/inventory/events/{file.event_id}", {"authorization": f"Bearer {ADMIN_SECRET}"}
        (
            await fans.put(path, json=file.model_dump(mode="json"), headers=head, timeout=LOADING_MAX_S)
        ).raise_for_status()
        seats = sum(section.capacity for section in file.sections)
        async with trial.connection() as connection:
            await connection.execute(SELL, file.event_id, int(seats * SOLD), int(seats * HELD), timeout=LOADING_MAX_S)
            await connection.execute("VACUUM ANALYZE")
        yield app.state.deps, fans


async def measure_rebuild(state: State, fans: httpx.AsyncClient, event_id: str, fan: int) -> RebuildTimes:
    """Empties Redis once; then one fan requests a seat until it is granted."""
    stages: dict[str, float] = {}

    async def timed(*args: object, **options: object) -> object:
        began_s = time.perf_counter()
        stock = await read_stock(*args, **options)  # type: ignore[arg-type]
        stages["read"] = time.perf_counter() - began_s
        stages["filled_from"] = time.perf_counter()
        return stock

    rebuild.read_stock = timed  # type: ignore[assignment,attr-defined]
    await state.redis_stock.redis.flushall()
    began_s, refused = time.perf_counter(), 0
    while True:
        status = await try_hold(fans, event_id, fan)
        if status == 201:
            break
        assert status == 503, status
        refused += 1
        await asyncio.sleep(0.01)
    back_s = time.perf_counter()
    rebuild.read_stock = read_stock  # type: ignore[attr-defined]
    return RebuildTimes(back_s - began_s, stages["read"], back_s - stages["filled_from"], refused)


async def try_hold(fans: httpx.AsyncClient, event_id: str, fan: int) -> int:
    """One fan requests the best available seat; the status of the answer."""
    head, _, body = reservation_request(fan, {"best_available": {"quantity": 1}}).partition(b"\r\n\r\n")
    lines = [line.decode().partition(": ") for line in head.split(b"\r\n")[1:]]
    headers = {name: value for name, _, value in lines if name.lower() in ("authorization", "content-type")}
    answer = await fans.post(f"/events/{event_id}/reservations", content=body, headers=headers)
    return answer.status_code


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Loses Redis in every round, on one inventory of each size; the audit must be clean after each."""
    rows, claims = list[tuple[str, ...]](), list[Claim]()
    for seats, aim in (QUICK_SEATS if effort.quick else SEATS).items():
        rounds, audits_s = await lose_redis(testbed, effort, event(seats))
        rows += [
            (f"{seats:,}", str(number), f"{done.back_s:.2f}", f"{done.read_s:.2f}", f"{done.fill_s:.2f}",
             str(done.refused), f"{audit_s:.2f}")
            for number, (done, audit_s) in enumerate(zip(rounds, audits_s, strict=True), 1)
        ]  # fmt: skip
        back_s = statistics.median(done.back_s for done in rounds)
        read_s = statistics.median(done.read_s for done in rounds)
        claim = Claim(f"sells again after FLUSHALL, {seats:,} seats", f"{back_s:.2f} s",
                      f"reading the ledger alone {read_s:.2f} s", f"{back_s / read_s:.1f} ×", aim)  # fmt: skip
        claims.append(claim)
    return Figures(HEADINGS, rows, claims, ["the audit is clean after each loss"])


async def lose_redis(testbed: Testbed, effort: Effort, file: EventFile) -> tuple[list[RebuildTimes], list[float]]:
    """The times of each recovery, and of the audit after it."""
    rounds, audits_s = list[RebuildTimes](), list[float]()
    async with testbed.trial() as trial, selling(trial, file) as (state, fans):
        for number in range(effort.rounds):
            await until_ready(state, file.event_id)
            rounds.append(await measure_rebuild(state, fans, file.event_id, number + 1))
            began_s = time.perf_counter()
            checked = await check_invariants(state.db, state.redis_stock, state.catalogue.layout(file.event_id))
            audits_s.append(time.perf_counter() - began_s)
            if broken := [one for one in checked.invariants if not one.holds]:
                raise CheckFailed(f"the audit: {broken}")
    return rounds, audits_s


async def until_ready(state: State, event_id: str) -> None:
    """Waits until the stock in Redis is ready."""
    while event_id not in state.redis_monitor.ready_since_s:  # noqa: ASYNC110 - nothing signals it
        await asyncio.sleep(0.05)
