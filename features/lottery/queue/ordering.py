"""Rooms whose order is drawn: the table of lotteries, the commitment to a seed, and the rules that bind it."""

import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    ColumnElement,
    DateTime,
    Integer,
    LargeBinary,
    Select,
    Table,
    Text,
    and_,
    case,
    delete,
    func,
    insert,
    select,
)
from sqlalchemy.dialects.postgresql import JSONB

from features.lottery.arithmetic import draw_key
from features.lottery.ranking import PENDING, LotteryRanking, LotteryStage
from features.lottery.rules import RoomLottery
from services.queue.problems import RoomStateConflict
from services.queue.rooms.model import RoomOrdering, WaitingRoom
from services.queue.tables import metadata, room
from shared.contracts.file_parts import part_of
from shared.contracts.frames import RankedLane
from shared.errors.problems import InvalidRequest
from shared.postgres.engine import AsyncConnection
from shared.runtime.clock import from_datetime, now_ms

lottery = Table(
    "lottery",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("seed", LargeBinary, nullable=False),
    Column("blind", LargeBinary, nullable=False),
    Column("committed_at", DateTime(timezone=True), nullable=False),
    Column("closed_at", DateTime(timezone=True)),
    Column("entrants", JSONB(none_as_null=True)),
    Column("counted_at", DateTime(timezone=True)),
    Column("branches", JSONB(none_as_null=True)),
    Column("public_value", Text),
    Column("drawn_at", DateTime(timezone=True)),
    CheckConstraint("(drawn_at IS NULL) = (public_value IS NULL)", name="drawn_with_a_value"),
    CheckConstraint("(closed_at IS NULL) = (entrants IS NULL)", name="closed_with_entrants"),
    CheckConstraint("counted_at IS NULL OR closed_at IS NOT NULL", name="counted_when_closed"),
    CheckConstraint("drawn_at IS NULL OR counted_at IS NOT NULL", name="drawn_when_counted"),
)

SECRET_BYTES = 32
OF_ROOM = and_(lottery.c.event_id == room.c.event_id, lottery.c.epoch == room.c.epoch)
COLUMNS = (
    lottery.c.closed_at,
    lottery.c.counted_at,
    lottery.c.entrants,
    lottery.c.public_value,
    case((lottery.c.drawn_at.is_not(None), lottery.c.seed)).label("seed"),
)


def of_epoch(event_id: str, epoch: int) -> ColumnElement[bool]:
    """The condition that selects the lottery of this epoch."""
    return and_(lottery.c.event_id == event_id, lottery.c.epoch == epoch)


class LotteryOrdering(RoomOrdering):
    """Every line has a seed, which is committed to before anybody can enter."""

    def joined(self, rooms: Select[Any]) -> Select[Any]:
        return rooms.add_columns(*COLUMNS).join_from(room, lottery, OF_ROOM, isouter=True)

    def ranking(self, row: Mapping[str, Any]) -> LotteryRanking:
        """From a room's row with `COLUMNS`."""
        event_id, epoch = row["event_id"], row["epoch"]
        if row["public_value"] is None:
            stage: LotteryStage = "closed" if row["closed_at"] else "open"
            return LotteryRanking(epoch, PENDING, stage=stage, counted=row["counted_at"] is not None)
        lanes = {}
        for lane, count in row["entrants"].items():
            key = draw_key(
                row["seed"], row["public_value"], event_id=event_id, epoch=epoch, lane=int(lane),
                entrants_n=count["n"], entrants_hash=count["hash"],
            )  # fmt: skip
            lanes[int(lane)] = RankedLane(entrants_n=count["n"], key=key.hex())
        return LotteryRanking(epoch, ranked=True, stage="drawn", lanes=lanes)

    async def begin(self, connection: AsyncConnection, event_id: str, epoch: int) -> None:
        """Commits to a seed; an earlier one is void."""
        await connection.execute(delete(lottery).where(of_epoch(event_id, epoch)))
        await connection.execute(
            insert(lottery).values(
                event_id=event_id,
                epoch=epoch,
                seed=secrets.token_bytes(SECRET_BYTES),
                blind=secrets.token_bytes(SECRET_BYTES),
                committed_at=func.clock_timestamp(),
            )
        )

    async def check(self, connection: AsyncConnection, room: WaitingRoom, *, opening: bool = False) -> None:
        """Raises `RoomStateConflict` for a lottery that would open after its entry was to close, without entrants, and
        `InvalidRequest` for one whose seed was committed to after entry opened: nobody could verify it.

        Without `queue_opens_at` entry begins when an operator opens the room, which is always later.
        """
        rules, opens_at = part_of(room.options, RoomLottery).lottery, room.queue_opens_at
        if opening and rules and room.state == "draft" and now_ms() >= from_datetime(rules.entry_closes_at):
            raise RoomStateConflict(
                "Entry to the lottery was to close before now. Apply an event file with new times, then open the room."
            )
        row = select(lottery.c.committed_at).where(of_epoch(room.event_id, room.epoch))
        committed_at = (await connection.execute(row)).scalar_one_or_none()
        if opens_at is not None and committed_at is not None and opens_at < committed_at:
            raise InvalidRequest(
                f"queue_opens_at ({opens_at.isoformat()}) is past. A lottery's seed must be committed to before entry "
                "opens, or nobody could verify the draw. Set a future time, or leave it out and open the room by hand."
            )


LOTTERY = LotteryOrdering()
