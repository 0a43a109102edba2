"""One sale on processes of two versions: every service runs once from an earlier commit and once from today's code,
and processes are restarted as the other version while fans buy. A service whose earlier code knows other tables runs
as today's alone: its upgrade is a stop (docs/operate/upgrade.md).
"""

import asyncio
import itertools
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from onsale.local.engines import Engines
from proof.drills.fleet import Fleet
from proof.drills.sale import ONE_TICKET, longest_silence_s, on_sale
from proof.upgrades.history import unpacked
from shared.routes import SALE_SERVICES
from tests.support.engines.engines import in_database, sql

AT_ONCE, SWAPS_MIN, SILENCE_MAX_S = 4, 4, 60.0
TABLES_SINCE = {"orders": "0009"}  # by service, the migration before which no process can run on today's tables
FLOOR = [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 20_000, "price_minor": 3000}]
ROOM = {"rate_per_s": 100, "burst": 100, "max_active": 5000, "claim_window_s": 120}
SETTINGS = {"ONSALE_POSTGRES_POOL_MAX": "5", "GATEWAY_ADDRESS_JOINS_PER_S": "10000", "ONSALE_LOG_REQUESTS": "false"}


class TwoVersions:
    """A fleet with two processes of every service; `earlier` is the code of the other version."""

    def __init__(self, data_dir: Path, postgres_url: str, earlier: Path, environ: Mapping[str, str] = SETTINGS) -> None:
        self.fleet = Fleet(data_dir, postgres_url, copies=2, environ=environ)
        self.earlier = str(earlier)
        for name in self.fleet.copies("console"):
            del self.fleet.programs[name]  # fans need none
        self.names = [name for service in SALE_SERVICES for name in self.fleet.copies(service)]
        alone = {
            service for service, revision in TABLES_SINCE.items() if not _has_migration(earlier, service, revision)
        }
        self.mixed = [name for name in self.names if name.rpartition("-")[0] not in alone and name not in alone]
        for name in self.mixed:
            if name.endswith("-2"):
                self._choose(name, earlier=True)

    def start(self) -> None:
        """Today's processes first, then the others: twelve at once take minutes on a busy machine."""
        programs = self.fleet.programs
        self.fleet.valkey.start()
        self.fleet.valkey.wait()
        programs["sandbox"].start()
        for second in (False, True):
            names = [name for name in self.names if name.endswith("-2") == second]
            for name in names:
                programs[name].start()
            for name in names:
                self.fleet.wait_for(name)

    def is_earlier(self, name: str) -> bool:
        return (self.fleet.programs[name].env or {}).get("PYTHONPATH") == self.earlier

    def _choose(self, name: str, *, earlier: bool) -> None:
        program = self.fleet.programs[name]
        kept = {key: value for key, value in (program.env or {}).items() if key != "PYTHONPATH"}
        program.env = kept | ({"PYTHONPATH": self.earlier} if earlier else {})

    async def swap(self, name: str) -> None:
        """Ends the process and starts it as the other version."""
        self._choose(name, earlier=not self.is_earlier(name))
        await self.fleet.restart(name, signal.SIGTERM)


def _has_migration(tree: Path, service: str, revision: str) -> bool:
    return any((tree / "services" / service / "migrations" / "versions").glob(f"{revision}_*"))


async def sell(engines: Engines, migrated: str, folder: Path, commit: str, *, seconds: float, seed: int) -> list[str]:
    """What is wrong after a sale of about so many seconds; `SWAPS_MIN` processes or more change their version."""
    await sql(engines, f"create database mixed_{seed} template {migrated}")
    earlier = await asyncio.to_thread(unpacked, commit, folder)
    two = TwoVersions(folder / f"mixed-{seed}", in_database(engines, f"mixed_{seed}"), earlier)
    try:
        two.start()
        return await _sell(two, seconds, random.Random(seed))
    finally:
        two.fleet.end()


async def _sell(two: TwoVersions, seconds: float, chance: random.Random) -> list[str]:
    end, statuses = asyncio.Event(), []
    longest_silence_s(reset=True)
    async with on_sale(two.fleet, sections=FLOOR, room=ROOM) as sale:

        async def buy_until_end() -> None:
            while not end.is_set():
                order = await sale.buy(ONE_TICKET)
                statuses.append(str(order["status"]))

        buying = asyncio.gather(*(buy_until_end() for _ in range(AT_ONCE)), return_exceptions=True)
        deadline_s = time.monotonic() + seconds
        try:
            for swapped, name in enumerate(itertools.cycle(chance.sample(two.mixed, len(two.mixed)))):
                if buying.done() or (time.monotonic() > deadline_s and swapped >= SWAPS_MIN):
                    break
                await two.swap(name)
                version = "the earlier" if two.is_earlier(name) else "today's"
                print(f"upgrades: {name} runs {version} code now, {len(statuses)} fans have bought", flush=True)
        finally:
            end.set()
            outcomes = await buying
        stopped = [f"a fan could not buy: {each!r}"[:400] for each in outcomes if each is not None]
        return stopped + _wrong(statuses)


def _wrong(statuses: list[str]) -> list[str]:
    """What the fans say; what the books say is compared when the sale ends."""
    bought = statuses.count("confirmed")
    wrong = [f"{len(statuses) - bought} of {len(statuses)} orders were not confirmed"] * (bought < len(statuses))
    wrong += ["nobody bought"] * (not bought)
    silence_s = longest_silence_s()
    return wrong + [f"a fan had no good answer for {silence_s:.1f} s"] * (silence_s > SILENCE_MAX_S)
