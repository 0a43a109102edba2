"""Many fans, few tickets: how many are sold, oversold, and back on sale once all holds have ended."""

import itertools
from dataclasses import dataclass

from bench.baselines.stock_designs import AdvisorySum, ForUpdate, HotCounter, ReadThenWrite, TtlKey, UnitRows
from bench.harness.measurement import CheckFailed, Claim, Effort, Figures, Finding, Testbed
from bench.stock.our_stock import TICKETS, Design, OurStock, Venue
from bench.stock.stock_designs import AS_IT_IS, database_url, opened
from shared.postgres import migrations

DESIGNS = (OurStock, ForUpdate, HotCounter, UnitRows, AdvisorySum, TtlKey, ReadThenWrite)
LEFT, FANS, QUICK_FANS = 100, 1000, 100
HEADINGS = ("design", "all answered in ms", "sold", "oversold", "left over", "lost after the holds ended")


def last_tickets() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="Last tickets",
        title=f"{FANS:,} fans at once for the last {LEFT} tickets",
        settings=[
            f"Each fan wants {TICKETS} and asks once, all at the same time. Sold, oversold and left over by what a "
            "design keeps, not by what it answered; the sum of all rounds.",
            "Then all holds end as the design ends them: by a scan of the ledger; the TTL keys expire; ours by the "
            "deadlines, with the scripts' clock moved on. Lost: tickets that nobody holds and nobody can buy.",
            "The design without a guard shows that the count notices.",
        ],
        find=find,
    )


@dataclass
class Rush:
    """The sums of all rounds of one design, in tickets."""

    milliseconds: float = 0.0
    rounds: int = 0
    sold: int = 0
    oversold: int = 0
    left_over: int = 0
    lost: int = 0

    def row(self, name: str) -> tuple[str, ...]:
        counted = (self.sold, self.oversold, self.left_over, self.lost)
        return name, f"{self.milliseconds / self.rounds:.0f}", *(f"{n:,}" for n in counted)


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Runs all designs alternately. Raises `CheckFailed` if ours oversells, leaves or loses a ticket."""
    fans = QUICK_FANS if effort.quick else FANS
    rushes = {kind.name: Rush() for kind in DESIGNS}
    async with testbed.trial() as trial:
        await migrations.upgrade(trial.postgres_url, "inventory")
        async with database_url(trial, AS_IT_IS) as url, opened(url, trial.redis_url, DESIGNS) as designs:
            for number in range(effort.rounds):
                for design in designs:
                    await _rush(design, Venue(f"last{number}", 1, LEFT), fans, rushes[design.name])
    ours, unguarded = rushes[OurStock.name], rushes[ReadThenWrite.name]
    if ours.oversold or ours.left_over or ours.lost:
        raise CheckFailed(f"ours: {ours}")
    claim = Claim(
        f"the last {LEFT} tickets, {fans:,} fans at once", f"{ours.oversold} oversold, {ours.lost} lost",
        f"TTL key {rushes[TtlKey.name].lost} lost; no guard {unguarded.oversold} oversold", "–", "0 and 0",
    )  # fmt: skip
    return Figures(HEADINGS, [rush.row(name) for name, rush in rushes.items()], [claim])


async def _rush(design: Design, show: Venue, fans: int, rush: Rush) -> None:
    """One rush, and the end of its holds."""
    await design.create_stock(show)
    sold = await design.sell(show, itertools.repeat(0, fans), fans)
    stored = await design.holds_stored(show)
    await design.end_all(show)
    rush.milliseconds += sold.timing.seconds * 1000
    rush.rounds += 1
    rush.sold += stored
    rush.oversold += max(0, stored - show.capacity)
    rush.left_over += max(0, show.capacity - stored)
    rush.lost += max(0, show.capacity - await design.tickets_left(show))
