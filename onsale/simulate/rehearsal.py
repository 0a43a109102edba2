"""A rehearsal of an event: its copy is made and opened, simulated fans buy there, and the copy is closed, however it
ends.

The copy has the same places, prices, limits and rate, and opens at once. What a simulated fan cannot pass, and what
would reach beyond the copy, is left out and said in words.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onsale.admin_client import AdminClient, NotFoundThere
from onsale.errors import OperatorError
from onsale.simulate.command import Crowd, Report
from shared.contracts.admin.console import READ_PREVIEW, RehearsalResult
from shared.contracts.catalogue import READ_EVENT
from shared.contracts.event_file import EventFile
from shared.contracts.lanes import Lane
from shared.contracts.room_options import EntryRules, ForwardAuthRules

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
    room, sales = event.room, event.sales
    general = next(lane for lane in room.lanes if lane.lane == 0)
    times = room.queue_opens_at, room.sale_starts_at, room.sale_ends_at, general.opens_at
    reasons = {
        "the times of the sale: the copy opens at once": any(times),
        "the lottery: fans are called in the order in which they come": room.lottery is not None,
        "the lanes " + ", ".join(lane.name for lane in room.lanes if lane.lane)
        + ": simulated fans have no code and no claim": len(room.lanes) > 1,
        "sign-in: simulated fans have no account": room.entry.signed_in_only,
        "proof of work: all simulated fans come from one address": room.friction.proof_of_work != "off",
        "forward-auth: simulated fans buy here": room.gate != ForwardAuthRules(),
        "the share of fans who pass the waiting room by: all go through it": room.rollout_percent < 100,
        "the limit over the tour": sales.tour is not None,
    }  # fmt: skip
    rehearsed = room.model_copy(update={
        "queue_opens_at": None, "sale_starts_at": None, "sale_ends_at": None, "ordering": "fifo", "lottery": None,
        "lanes": (Lane(**{**dict(general), "opens_at": None}),), "entry": EntryRules(), "gate": ForwardAuthRules(),
        "friction": room.friction.model_copy(update={"proof_of_work": "off"}), "rollout_percent": 100.0,
    })  # fmt: skip
    copied = event.model_copy(update={
        "event_id": event_id, "name": event.name[: NAME_MAX - len(NAME_MARK)] + NAME_MARK, "rehearsal": True,
        "room": rehearsed, "sales": sales.model_copy(update={"tour": None}),
    })  # fmt: skip
    return EventFile.model_validate(copied.model_dump()), [words for words, applies in reasons.items() if applies]


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
