"""The clocks of Valkey and PostgreSQL are set forward and back in the middle of a sale; real engines believe them.

What fans were told is kept here, by this process's own clock, and compared with the ledger: nobody is told to have a
seat before the time is over that was told to whoever had it before, and no hold is seen ended before that time.
"""

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from onsale.local.binaries import find_postgres, find_redis
from tests.drills.crowd import PatientFan, insist
from tests.drills.fleet import HOST, Fleet, Valkey
from tests.drills.postgres_pair import Postgres, address
from tests.support.engines.engines import fast_place
from tests.support.running.suite import bearer
from tests.support.wait import wait_until

FANS, SEATS, HOLD_TTL_S, STEP_EVERY_S = 8, 5, 8, 5.0
STEPS = [  # which engine's clock is then how far off (s)
    ("valkey", 14), ("valkey", -14), ("postgres", 45), ("postgres", -45), ("valkey", 50), ("postgres", 0),
    ("valkey", 0), ("postgres", 3600), ("postgres", 0), ("valkey", -3600), ("valkey", 0),
]  # fmt: skip
SALES = {"hold_ttl_s": HOLD_TTL_S, "grace_s": 0, "tickets_per_customer": 0, "pay_ttl_s": 20}
SECTIONS = [
    {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 1, "seats_per_row": 12, "price_minor": 5000}
]
ENDED = "SELECT reservation_id FROM inventory.reservation WHERE event_id = $1 AND status = 'expired'"
FREE = "SELECT count(*) FROM inventory.seat WHERE event_id = $1 AND status = 'available'"
WHEEL = find_redis({"PATH": ""})
LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="needs libfaketime (Debian: faketime)")


class Clock:
    """What an engine takes for the time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)
        self.env = {
            "LD_PRELOAD": str(LIBRARY), "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip

    def set(self, by_s: int) -> None:
        beside = self._file.with_suffix(".new")
        beside.write_text(f"{by_s:+d}\n")
        beside.rename(self._file)


@dataclass
class Sale:
    """A suite whose engines have clocks of their own."""

    fleet: Fleet
    ledger: Postgres
    clocks: dict[str, Clock]


@pytest.fixture
async def sale(tmp_path: Path) -> AsyncIterator[Sale]:
    with tempfile.TemporaryDirectory(prefix="onsale-clocks-", dir=fast_place()) as place:
        folder = Path(place)
        clocks = {name: Clock(folder / f"{name}.clock") for name in ("valkey", "postgres")}
        ledger = Postgres(folder / "ledger", find_postgres(os.environ, major=None))
        ledger.env = ledger.env | clocks["postgres"].env
        (folder / "valkey").mkdir()
        valkey = Valkey(folder / "valkey")
        valkey.command[0] = str(WHEEL)  # jemalloc, in others, asks for the time before it can be told
        valkey.env = valkey.env | clocks["valkey"].env
        fleet = None
        try:
            await ledger.create()
            await ledger.ask("CREATE DATABASE onsale", database="postgres")
            url = address(f"{HOST}:{ledger.port}")
            clean = {name: value for name, value in os.environ.items() if not name.startswith("ONSALE_")}
            migrate = [sys.executable, "-P", "-m", "onsale", "migrate"]
            await asyncio.to_thread(
                subprocess.run, migrate, env=clean | {"ONSALE_POSTGRES_URL": url}, check=True, capture_output=True
            )
            valkey.start()
            await asyncio.to_thread(valkey.wait)
            fleet = Fleet(tmp_path / "data", url, redis_url=valkey.url).start()
            yield Sale(await asyncio.to_thread(fleet.wait_until_ready), ledger, clocks)
        finally:
            if fleet is not None:
                fleet.end()
            valkey.end(signal.SIGKILL)
            ledger.lose()


class Witness:
    """What was told to whom, and when each hold was first seen ended, by a clock that nobody sets."""

    def __init__(self) -> None:
        self.told: dict[str, list[tuple[float, float, str]]] = {}  # seat: (told at, reserved until, reservation)
        self.until_s: dict[str, float] = {}
        self.paused = 0

    def hears(self, seat: str, answer: dict[str, Any]) -> None:
        until_s = datetime.fromisoformat(answer["reserved_until"]).timestamp()
        if answer["reservation_id"] not in self.until_s:
            self.told.setdefault(seat, []).append((time.time(), until_s, answer["reservation_id"]))
        self.until_s[answer["reservation_id"]] = until_s

    def twice(self) -> list[str]:
        """Seats that were told to a second fan while the first still had them."""
        found = []
        for seat, told in self.told.items():
            for (_, until_s, first), (at_s, _, second) in itertools.pairwise(told):
                if at_s < until_s:
                    found.append(f"{seat}: {second} came {until_s - at_s:.1f} s before the end of {first}")
        return found


@pytest.mark.drill
@pytest.mark.timeout(400)
async def test_whatever_the_clocks_say_an_end_that_was_told_is_kept(sale: Sale, recovery: Callable[..., None]) -> None:
    fleet, witness, over = sale.fleet, Witness(), asyncio.Event()
    event_id = await fleet.open_event(sales=SALES, sections=SECTIONS)
    early: list[str] = []

    async def fan(mine: PatientFan) -> None:
        """Wants a seat, never pays, and wants another when it is over."""
        while not over.is_set():
            seat = f"A-1-{random.randint(1, SEATS)}"
            headers = bearer(mine.admission)
            answer = await mine.browser.post(f"{mine.path}/reservations", json={"seats": [seat]}, headers=headers)
            if answer.status_code == 201:
                witness.hears(answer.json()["seats"][0], answer.json())
            else:
                assert answer.status_code in (409, 503), answer.text
                witness.paused += answer.json()["type"].endswith("/clocks-apart")
            await asyncio.sleep(0.1)

    async def watch() -> None:
        while not over.is_set():
            rows = await sale.ledger.ask(ENDED, event_id)
            seen_s = time.time()
            ended = {row["reservation_id"] for row in rows} & witness.until_s.keys()
            early.extend(r for r in ended - set(early) if seen_s < witness.until_s[r] and r not in settled)
            settled.update(ended)
            await asyncio.sleep(0.1)

    settled: set[str] = set()
    async with fleet.browser() as browser:
        inside = [PatientFan(browser, event_id) for _ in range(FANS + 1)]
        buyer, *others = await asyncio.gather(*(one.come_in() for one in inside))
        fans = [asyncio.create_task(fan(one)) for one in others]
        watching = asyncio.create_task(watch())
        for which, by_s in STEPS:
            sale.clocks[which].set(by_s)
            await asyncio.sleep(STEP_EVERY_S)
        right_s = time.monotonic()
        order = await insist(lambda: buyer.buys(seats=["A-1-12"]))
        again_s = time.monotonic() - right_s
        assert order["status"] == "confirmed"
        over.set()
        await asyncio.gather(*fans, watching)
    assert witness.twice() == []
    assert early == []
    assert witness.paused, "an hour is too far apart to sell"
    assert sum(map(len, witness.told.values())) > SEATS, "hardly anybody was told anything"

    async def all_back() -> bool:
        return bool((await sale.ledger.ask(FREE, event_id))[0][0] == 11)

    await wait_until(all_back, timeout_s=90)
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=30, interval_s=0.3)
    recovery("clocks of the engines set by an hour and back: a sale", again_s, promise="15 s / 0")
