"""The clocks of Valkey and PostgreSQL are set forward and back by libfaketime during a sale.

This process records, by its own clock, the deadline of each hold as it was answered to fans. No seat is held for a
second fan before the deadline of the first, and no hold ends before its deadline.
"""

import asyncio
import itertools
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from onsale.client import Fan, Problem
from onsale.client.fan_documents import ReservationView
from onsale.local.binaries import find_postgres, find_redis
from onsale.local.ports import HOST
from proof.drills.fleet import Fleet, Valkey, migrate
from proof.drills.postgres_pair import Postgres, address
from proof.drills.sale import patient_fan, require_kept
from tests.support.engines.engines import fast_directory
from tests.support.programs import MISSING
from tests.support.running.suite import fan_of
from tests.support.wait import wait_until

FANS, SEATS, HOLD_TTL_S, STEP_EVERY_S = 8, 5, 8, 5.0
STEPS = [  # the server whose clock is set, and its offset (s)
    ("valkey", 14), ("valkey", -14), ("postgres", 45), ("postgres", -45), ("valkey", 50), ("postgres", 0),
    ("valkey", 0), ("postgres", 3600), ("postgres", 0), ("valkey", -3600), ("valkey", 0),
]  # fmt: skip
SALES = {"hold_ttl_s": HOLD_TTL_S, "grace_s": 0, "tickets_per_customer": 0, "pay_ttl_s": 20}
SECTIONS = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 1, "seats_per_row": 12, "price_minor": 5000}
]
ENDED = "SELECT reservation_id FROM inventory.reservation WHERE event_id = $1 AND status = 'expired'"
FREE = "SELECT count(*) FROM inventory.seat WHERE event_id = $1 AND status = 'available'"
BUNDLED_VALKEY = find_redis({"PATH": ""})
LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
pytestmark = pytest.mark.skipif(LIBRARY is None, reason=f"{MISSING}faketime")


class Clock:
    """The time that one server sees."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)
        self.env = {
            "LD_PRELOAD": str(LIBRARY), "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip

    def set(self, by_s: int) -> None:
        new_file = self._file.with_suffix(".new")
        new_file.write_text(f"{by_s:+d}\n")
        new_file.rename(self._file)


@dataclass
class Sale:
    """A fleet whose Valkey and PostgreSQL have settable clocks."""

    fleet: Fleet
    postgres: Postgres
    clocks: dict[str, Clock]


@pytest.fixture
async def sale(tmp_path: Path) -> AsyncIterator[Sale]:
    with tempfile.TemporaryDirectory(prefix="onsale-clocks-", dir=fast_directory()) as directory:
        folder = Path(directory)
        clocks = {name: Clock(folder / f"{name}.clock") for name in ("valkey", "postgres")}
        postgres = Postgres(folder / "postgres", find_postgres(os.environ, major=None))
        postgres.env = postgres.env | clocks["postgres"].env
        (folder / "valkey").mkdir()
        valkey = Valkey(folder / "valkey")
        valkey.command[0] = str(BUNDLED_VALKEY)  # others use jemalloc, which reads the time before libfaketime is ready
        valkey.env = valkey.env | clocks["valkey"].env
        fleet = None
        try:
            await postgres.create()
            await postgres.query("CREATE DATABASE onsale", database="postgres")
            url = address(f"{HOST}:{postgres.port}")
            await migrate({"ONSALE_POSTGRES_URL": url})
            valkey.start()
            await asyncio.to_thread(valkey.wait)
            fleet = Fleet(tmp_path / "data", url, redis_url=valkey.url).start()
            yield Sale(await asyncio.to_thread(fleet.wait_until_ready), postgres, clocks)
        finally:
            if fleet is not None:
                fleet.end()
            valkey.end(signal.SIGKILL)
            postgres.lose()


class HoldRecorder:
    """Records the holds answered to fans and their deadlines, by a clock that is not changed."""

    def __init__(self) -> None:
        self.holds: dict[str, list[tuple[float, float, str]]] = {}  # seat: (answered at, reserved until, reservation)
        self.until_s: dict[str, float] = {}
        self.paused = 0

    def record(self, seat: str, answer: ReservationView) -> None:
        until_s = datetime.fromisoformat(answer["reserved_until"]).timestamp()
        if answer["reservation_id"] not in self.until_s:
            self.holds.setdefault(seat, []).append((time.time(), until_s, answer["reservation_id"]))
        self.until_s[answer["reservation_id"]] = until_s

    def held_twice(self) -> list[str]:
        """Seats held for a second fan before the deadline of the first."""
        found = []
        for seat, holds in self.holds.items():
            for (_, until_s, first), (at_s, _, second) in itertools.pairwise(holds):
                if at_s < until_s:
                    found.append(f"{seat}: {second} came {until_s - at_s:.1f} s before the end of {first}")
        return found


@pytest.mark.timeout(400)
async def test_holds_keep_their_deadlines_although_clocks_are_set_forward_and_back(
    sale: Sale, recovery: Callable[..., None]
) -> None:
    fleet, recorder, sale_is_over = sale.fleet, HoldRecorder(), asyncio.Event()
    event_id = await fleet.open_event(sales=SALES, sections=SECTIONS)
    early: list[str] = []

    async def keeps_holding(fan: Fan) -> None:
        """Holds seats at random and never pays."""
        while not sale_is_over.is_set():
            try:
                held = await fan.hold({"seats": [f"A-1-{random.randint(1, SEATS)}"]})
                recorder.record(held["seats"][0], held)
            except Problem as problem:
                if problem.status not in (409, 503):
                    raise
                recorder.paused += problem.slug == "clocks-apart"
            await asyncio.sleep(0.1)

    async def watch() -> None:
        while not sale_is_over.is_set():
            rows = await sale.postgres.query(ENDED, event_id)
            read_s = time.time()
            ended = {row["reservation_id"] for row in rows} & recorder.until_s.keys()
            early.extend(r for r in ended - set(early) if read_s < recorder.until_s[r] and r not in ended_before)
            ended_before.update(ended)
            await asyncio.sleep(0.1)

    ended_before: set[str] = set()
    async with fleet.browser() as browser:
        inside = [patient_fan(browser, event_id), *(fan_of(browser, event_id) for _ in range(FANS))]
        buyer, *others = await asyncio.gather(*(fan_inside.come_in() for fan_inside in inside))
        fans = [asyncio.create_task(keeps_holding(fan_inside)) for fan_inside in others]
        watching = asyncio.create_task(watch())
        for server, by_s in STEPS:
            sale.clocks[server].set(by_s)
            await asyncio.sleep(STEP_EVERY_S)
        clocks_agree_s = time.monotonic()
        order = await buyer.buy(await buyer.hold({"seats": ["A-1-12"]}))
        again_s = time.monotonic() - clocks_agree_s
        assert order["status"] == "confirmed"
        sale_is_over.set()
        await asyncio.gather(*fans, watching)
    assert recorder.held_twice() == []
    assert early == []
    assert recorder.paused, "sales pause while the clocks are an hour apart"
    assert sum(map(len, recorder.holds.values())) > SEATS, "too few holds for a meaningful drill"

    async def all_seats_are_free() -> bool:
        return bool((await sale.postgres.query(FREE, event_id))[0][0] == 11)

    await wait_until(all_seats_are_free, timeout_s=90)
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=30, interval_s=0.3)
    await require_kept(fleet, event_id)
    recovery("clocks of the engines set by an hour and back: a sale", again_s, promise="15 s / 0")
