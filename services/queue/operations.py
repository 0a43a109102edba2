"""What operators do with a waiting room: read, configure, open, pause, reset, admit, rebuild.

Every change is written to the audit log and takes effect with the next tick, which is run at once. While Redis is
unavailable a change is only stored; the gatekeeper applies it later.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.queue.admission.ceiling import ControlLoop
from services.queue.admission.gatekeeper import Gatekeeper, admit_now
from services.queue.line.invariants import check_invariants
from services.queue.line.rebuild import Recovery
from services.queue.line.redis_line import RedisLine
from services.queue.line.repository import LaneTotals, LineRepository
from services.queue.line.rules import LineRules
from services.queue.problems import RoomStateConflict
from services.queue.rooms.model import RequestedBy, WaitingRoom
from services.queue.rooms.store import Action, AdmitKeys, Rooms
from services.queue.tables import audit_log
from shared.audit_log import of_event
from shared.contracts.admin.audit import AuditPage
from shared.contracts.admin.queue import (
    NULLABLE,
    AdmitResult,
    LaneView,
    QueueInvariantReport,
    RoomDryRun,
    RoomPatch,
    RoomView,
)
from shared.contracts.event_file import EventFile
from shared.contracts.frames import LaneHead, LineFrame
from shared.contracts.room_options import Lane
from shared.errors.problems import InvalidRequest
from shared.postgres.pages import PageRequest

NO_CALLS = LaneTotals(0, 0, 0.0, 0)
ADMITTING = frozenset({"open", "paused", "draining"})


@dataclass(frozen=True)
class RoomOperations:
    """All rooms. Every change raises `VersionMismatch` if the operator read another version. `target_rates`: by event
    the rate that a part would set or has set; the view of the room shows it.
    """

    rooms: Rooms
    line: RedisLine
    rules: LineRules
    gatekeeper: Gatekeeper
    recovery: Recovery
    control_loop: ControlLoop
    target_rates: dict[str, float] = field(default_factory=dict)

    async def get(self, event_id: str) -> RoomView:
        """The room as it is now. Raises `UnknownEvent`."""
        return await self._view(await self.rooms.read(event_id))

    async def apply_event_file(
        self, file: EventFile, by: RequestedBy, *, dry_run: bool
    ) -> tuple[RoomView | RoomDryRun, bool]:
        """Creates the room as a draft or updates its configuration; whether it was created."""
        self._require_codes(file.room.lanes)
        applied = await self.rooms.apply(file, by, dry_run=dry_run)
        if dry_run:
            return RoomDryRun(event_id=file.event_id, changed=applied.changed), False
        return await self._enforce(applied.room), applied.created

    async def change(self, event_id: str, patch: RoomPatch, by: RequestedBy) -> RoomView:
        """Changes the fields that were sent. Raises `InvalidRequest`."""
        wanted: dict[str, Any] = {name: getattr(patch, name) for name in patch.model_fields_set - {"reason"}}
        for name, value in wanted.items():
            if value is None and name not in NULLABLE:
                raise InvalidRequest(f"{name}: null is not acceptable. Leave the field out to keep its value.")
        if not wanted:
            raise InvalidRequest("The body changes nothing. Send at least one field besides reason.")
        self._require_codes(patch.lanes or ())
        _check_order_of_times(await self.rooms.read(event_id), wanted)
        return await self._enforce(await self.rooms.change(event_id, wanted, by))

    async def change_options(self, event_id: str, wanted: Mapping[str, Any], by: RequestedBy) -> RoomView:
        """Replaces options of the room, by their names in the event file."""
        return await self._enforce(await self.rooms.change(event_id, wanted, by))

    async def set_message(self, event_id: str, message: str | None, by: RequestedBy) -> RoomView:
        """Sets or removes the message to everybody in the line."""
        return await self._enforce(await self.rooms.change(event_id, {"message": message}, by, action="message"))

    async def transition(self, event_id: str, action: Action, by: RequestedBy) -> RoomView:
        """Opens, pauses, resumes, drains or closes the room. Raises `RoomStateConflict`."""
        return await self._enforce(await self.rooms.transition(event_id, action, by))

    async def reset(self, event_id: str, by: RequestedBy) -> RoomView:
        """Raises the epoch, so that every place, token and pass of the old line is invalid."""
        room = await self.rooms.reset(event_id, by)
        await self.control_loop.invalidate_old_passes(room)
        return await self._enforce(room)

    async def admit(self, event_id: str, count: int, by: RequestedBy, key: str | None = None) -> AdmitResult:
        """Calls fans beyond the rate in one tick; requests with the same key do so once. Raises `RoomStateConflict`,
        `Unavailable`, `IdempotencyInFlight`, `IdempotencyKeyReused`.
        """
        keys = AdmitKeys(self.rooms.db)
        if key is not None and (before := await keys.take(event_id, key, count)):
            return before
        async with keys.given_back_on_refusal(event_id, key):
            frame = await self.gatekeeper.frame(event_id)
            if frame.state not in ADMITTING:
                refusal = f"A room that is {frame.state} admits nobody. Open it first."
                raise RoomStateConflict(refusal, state=frame.state)
            room = await self.rooms.record_action(event_id, "admit", by, admit=count)
        called = await admit_now(self.line, self.gatekeeper, room, count)
        if key is not None:
            await keys.finish(event_id, key, called)
        return AdmitResult(called=called, asked=count)

    async def rebuild(self, event_id: str, by: RequestedBy) -> RoomView:
        """Rebuilds the room's Redis state from the database, whether or not anything seems to be missing."""
        await self.rooms.record_action(event_id, "rebuild", by)
        await self.recovery.rebuild(event_id, force=True)
        return await self._enforce(await self.rooms.read(event_id))

    async def audit_log(self, event_id: str, page: PageRequest[int]) -> AuditPage:
        """A page of the audit log. Raises `UnknownEvent`."""
        await self.rooms.read(event_id)
        return await audit_log.read_page(self.rooms.db, page, subject=of_event(event_id))

    async def invariants(self, event_id: str) -> QueueInvariantReport:
        room = await self.rooms.read(event_id)
        results = await check_invariants(
            self.rooms.db, self.line.redis, room, self.rules.bypass, clock_offset_ms=self.line.clock_offset_ms
        )
        return QueueInvariantReport(invariants=results)

    def _require_codes(self, lanes: Iterable[Lane]) -> None:
        """Raises `InvalidRequest` if a lane needs a code that nobody here reads."""
        if self.rules.codes is None and any(lane.code_required for lane in lanes):
            raise InvalidRequest("lanes: code_required belongs to a feature that is not installed or switched off.")

    async def _enforce(self, room: WaitingRoom) -> RoomView:
        """Writes the new configuration to Redis and runs one tick; without Redis the gatekeeper does it later."""
        await self.gatekeeper.apply_config(room)
        return await self._view(room)

    async def _view(self, room: WaitingRoom) -> RoomView:
        frame = await self.gatekeeper.frame(room.event_id)
        called, active = await self.line.count_slots(room.event_id, room.epoch)
        return RoomView.model_validate({
            **room.configuration(), "event_id": room.event_id, "shown_state": frame.state, "ready": frame.ready,
            "lanes": await self._lanes(room, frame), "called": called, "active": active,
            "calls_per_s": frame.calls_per_s, "live_ratio": frame.live_ratio,
            "effective_rate_per_s": frame.effective_rate_per_s, "throttled": frame.throttled,
            "guard_sees": self.control_loop.ceilings.observed.get(room.event_id),
            "autotune_rate_per_s": self.target_rates.get(room.event_id),
        })  # fmt: skip

    async def _lanes(self, room: WaitingRoom, frame: LineFrame) -> dict[int, LaneView]:
        """Each lane's configuration, its head and tail by the frame, and its totals in the database."""
        async with LineRepository.reading(self.rooms.db, room.event_id, room.epoch) as repository:
            lane_totals = await repository.lane_totals()
        views = {}
        for lane in room.options.lanes:
            totals = lane_totals.get(lane.lane, NO_CALLS)
            head = frame.lanes.get(lane.lane, LaneHead(head_seq=0, tail_seq=0))
            views[lane.lane] = LaneView(
                **dict(lane), **dict(head), calls=totals.calls, contended_calls=totals.contended_calls,
                fair_share=round(totals.fair_share, 2),
            )  # fmt: skip
        return views


def _check_order_of_times(room: WaitingRoom, wanted: dict[str, Any]) -> None:
    names = ("queue_opens_at", "sale_starts_at", "sale_ends_at")
    times = [at for name in names if (at := wanted.get(name, getattr(room, name)))]
    if times != sorted(times):
        raise InvalidRequest("queue_opens_at, sale_starts_at and sale_ends_at must be in this order.")
