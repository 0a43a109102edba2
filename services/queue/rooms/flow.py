"""How fans flow through the line: joined, called, claimed, how their places ended, how long they waited.

Counted in the database. However many operators watch, the line is counted at most once a second, and for at
most a tenth of the time.
"""

from functools import partial

from services.queue.rooms.model import WaitingRoom
from shared.concurrency.coalescing import CachedReads
from shared.contracts.admin.queue import LineFlow, LineHistory, LineStep, WaitTimes
from shared.contracts.fields import TimeSteps
from shared.postgres.engine import AsyncEngine, statement
from shared.runtime.clock import now_ms, to_datetime

_FLOW, _HISTORY = statement(__package__, "flow"), statement(__package__, "flow_history")


class LineFlows:
    """The flows of all rooms. Their places before the last reset are not counted."""

    def __init__(self, db: AsyncEngine) -> None:
        self._db = db
        self._flows: CachedReads[LineFlow] = CachedReads.for_reports()
        self._histories: CachedReads[LineHistory] = CachedReads.for_reports()

    async def flow(self, room: WaitingRoom) -> LineFlow:
        """Counts of the whole sale so far."""
        return await self._flows.get(f"{room.event_id}/{room.epoch}", partial(self._read_flow, room))

    async def history(self, room: WaitingRoom, steps: TimeSteps) -> LineHistory:
        """Counts by step of time."""
        key = f"{room.event_id}/{room.epoch}/{steps}"
        return await self._histories.get(key, partial(self._read_history, room, steps))

    async def _read_flow(self, room: WaitingRoom) -> LineFlow:
        async with self._db.connect() as connection:
            found = await connection.execute(_FLOW, {"event_id": room.event_id, "epoch": room.epoch})
            row = dict(found.mappings().one())
        p50_s, p95_s, longest_s = row.pop("waits_s") or (None, None, None)
        wait = WaitTimes(fans=row["called"], p50_s=p50_s, p95_s=p95_s, longest_s=longest_s)
        return LineFlow(event_id=room.event_id, epoch=room.epoch, at=to_datetime(now_ms()), wait=wait, **row)

    async def _read_history(self, room: WaitingRoom, steps: TimeSteps) -> LineHistory:
        bound = {"event_id": room.event_id, "epoch": room.epoch, **steps.bound()}
        async with self._db.connect() as connection:
            rows = (await connection.execute(_HISTORY, bound)).mappings().all()
        return LineHistory(steps=[LineStep.model_validate(dict(row)) for row in rows])

    async def close(self) -> None:
        """Cancels the statements under way."""
        await self._flows.close()
        await self._histories.close()
