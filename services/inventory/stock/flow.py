"""How fans flow through holds: who held, how holds ended, what each section has left; counted in the database.

However many operators watch, the holds are counted at most once a second, and for at most a tenth of the time.
"""

from functools import partial
from typing import get_args

from shared.concurrency.coalescing import CachedReads
from shared.contracts.admin.inventory import HoldsFlow, HoldsHistory, HoldsStep, SectionFlow
from shared.contracts.fields import TimeSteps
from shared.contracts.frames import ReservationState
from shared.postgres.engine import AsyncEngine, snapshot, statement
from shared.runtime.clock import now_ms, to_datetime

_FLOW, _SECTIONS = statement(__package__, "flow"), statement(__package__, "flow_sections")
_HISTORY, _RELEASED = statement(__package__, "flow_history"), statement(__package__, "release_reasons")


class HoldsFlows:
    """The flows of all events."""

    def __init__(self, db: AsyncEngine) -> None:
        self._db = db
        self._flows: CachedReads[HoldsFlow] = CachedReads.for_reports()
        self._histories: CachedReads[HoldsHistory] = CachedReads.for_reports()

    async def flow(self, event_id: str) -> HoldsFlow:
        """Counts of the whole sale so far."""
        return await self._flows.get(event_id, partial(self._read_flow, event_id))

    async def history(self, event_id: str, steps: TimeSteps) -> HoldsHistory:
        """Counts by step of time."""
        return await self._histories.get(f"{event_id}/{steps}", partial(self._read_history, event_id, steps))

    async def _read_flow(self, event_id: str) -> HoldsFlow:
        async with snapshot(self._db) as connection:
            row = dict((await connection.execute(_FLOW, {"event_id": event_id})).mappings().one())
            sections = (await connection.execute(_SECTIONS, {"event_id": event_id})).mappings().all()
        by_status = {status: row.pop(status) for status in get_args(ReservationState)}
        return HoldsFlow(
            event_id=event_id, at=to_datetime(now_ms()), by_status=by_status,
            sections=[SectionFlow.model_validate(dict(section)) for section in sections], **row,
        )  # fmt: skip

    async def _read_history(self, event_id: str, steps: TimeSteps) -> HoldsHistory:
        async with snapshot(self._db) as connection:
            rows = (await connection.execute(_HISTORY, {"event_id": event_id, **steps.bound()})).mappings().all()
            released = (await connection.execute(_RELEASED, {"event_id": event_id})).all()
        return HoldsHistory(
            steps=[HoldsStep.model_validate(dict(row)) for row in rows],
            released={row.reason: row.reservations for row in released},
        )

    async def close(self) -> None:
        """Cancels the statements under way."""
        await self._flows.close()
        await self._histories.close()
