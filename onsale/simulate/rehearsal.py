"""A rehearsal of an event: its copy is made and opened, simulated fans buy there, and the copy is closed, however it
ends.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onsale.admin_client import AdminClient, NotFoundThere
from onsale.errors import OperatorError
from onsale.simulate.command import Crowd, Report
from onsale.simulate.event_copy import copy_id, copy_of
from shared.contracts.admin.console import READ_PREVIEW, RehearsalResult
from shared.contracts.catalogue import READ_EVENT

COPIES_MAX = 99
JOINS_PER_S, JOINS_AT_ONCE, ARRIVE_OVER_LEAST_S = 40.0, 400, 5.0  # below the gateway's limits of one address
STREAMS = 100
VISIBLE_WITHIN_S, SETTLED_WITHIN_S, STEP_S = 20.0, 15.0, 0.25
Announce = Callable[[str, list[str]], None]


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
        pictures = await self.admin.pictures(self.event_id, copy.brand.files if copy.brand else ())
        await self.admin.apply(copy, pictures=pictures)
        crowd = Crowd(
            self.url, copy.event_id, fans=self.fans, arrive_over_s=self.arrive_over_s, seed=self.seed,
            streams=min(STREAMS, self.fans),
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
            await self.admin.call(READ_EVENT, event_id=event_id)
            view = await self.admin.call(READ_PREVIEW, query={"position": 1}, event_id=event_id)
        except OperatorError:
            return False
        return view.state == "open"

    async def _result(self, event_id: str, crowd: Crowd) -> RehearsalResult:
        flow = await self.admin.read_queue_flow(event_id)
        checked, broken = await self._invariants(event_id)
        found: dict[str, Any] = crowd.result()
        names = RehearsalResult.model_fields.keys() & found.keys()
        return RehearsalResult(
            **{name: found[name] for name in names - {"failures"}}, failures=found["failures"],
            wait_p50_s=flow.wait.p50_s, wait_p95_s=flow.wait.p95_s, invariants=checked, broken=broken,
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
