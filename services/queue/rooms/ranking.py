"""The order in which a line is called: by the numbers of the joins, or by the ranks of a drawn lottery.

The database and every token keep the number a fan joined with. In Redis, bits, calls and heads are in ranks once the
lottery is drawn; `RedisLine` and `recovery` translate. Before the draw, and for fans who joined after entry closed,
both are the same number.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, and_, case, delete, func, insert, select

from services.queue.problems import RoomStateConflict
from services.queue.tables import lottery, place, room
from shared.contracts.frames import LaneDraw, LotteryFrame
from shared.errors.problems import InvalidRequest
from shared.postgres.engine import AsyncConnection
from shared.rules.lottery_ranking import Permutation, draw_key, permutation

SECRET_BYTES = 32
LotteryStage = Literal["open", "closed", "drawn"]
LOTTERY_OF_ROOM = and_(lottery.c.event_id == room.c.event_id, lottery.c.epoch == room.c.epoch)
LOTTERY_COLUMNS = (
    lottery.c.closed_at,
    lottery.c.counted_at,
    lottery.c.entrants,
    lottery.c.public_value,
    case((lottery.c.drawn_at.is_not(None), lottery.c.seed)).label("seed"),
)


@dataclass(frozen=True)
class Ranking:
    """The stage of the lottery of one epoch and the ranks it drew; without a stage there is no lottery."""

    epoch: int
    stage: LotteryStage | None = None
    counted: bool = False
    lanes: Mapping[int, LaneDraw] = field(default_factory=dict)

    @property
    def pending(self) -> bool:
        """Whether the draw is still to come: until then nobody is called."""
        return self.stage is not None and self.stage != "drawn"

    @property
    def epoch_token(self) -> str:
        """The epoch in Redis, followed by `.1` once ranks count, so that a process that still counts in entry numbers
        is refused.
        """
        return f"{self.epoch}.1" if self.stage == "drawn" else str(self.epoch)

    def rank(self, lane: int, join_seq: int) -> int:
        drawn = self._permutation(lane)
        return drawn.rank(join_seq) if drawn else join_seq

    def ranks(self, lane: int, join_seqs: Iterable[int]) -> list[int]:
        drawn = self._permutation(lane)
        return list(map(drawn.rank, join_seqs) if drawn else join_seqs)

    def entry(self, lane: int, rank: int) -> int:
        drawn = self._permutation(lane)
        return drawn.entry(rank) if drawn else rank

    def _permutation(self, lane: int) -> Permutation | None:
        drawn = self.lanes.get(lane)
        return permutation(drawn.entrants_n, bytes.fromhex(drawn.key)) if drawn else None

    def to_frame(self) -> LotteryFrame | None:
        """The part of the line's frame about the lottery."""
        return LotteryFrame(stage=self.stage, lanes=dict(self.lanes)) if self.stage else None


def ranking_from_row(row: Mapping[str, Any]) -> Ranking:
    """The ranking from a room's row with `LOTTERY_COLUMNS`."""
    event_id, epoch = row["event_id"], row["epoch"]
    if row["ordering"] != "lottery":
        return Ranking(epoch)
    if row["public_value"] is None:
        return Ranking(epoch, "closed" if row["closed_at"] else "open", row["counted_at"] is not None)
    lanes = {}
    for lane, count in row["entrants"].items():
        key = draw_key(
            row["seed"], row["public_value"], event_id=event_id, epoch=epoch, lane=int(lane),
            entrants_n=count["n"], entrants_hash=count["hash"],
        )  # fmt: skip
        lanes[int(lane)] = LaneDraw(entrants_n=count["n"], key=key.hex())
    return Ranking(epoch, "drawn", True, lanes)


def of_epoch(event_id: str, epoch: int) -> ColumnElement[bool]:
    """The condition that selects the lottery of this epoch."""
    return and_(lottery.c.event_id == event_id, lottery.c.epoch == epoch)


async def commit_to_seed(connection: AsyncConnection, event_id: str, epoch: int) -> None:
    """Commits to the seed of a lottery that nobody has entered yet; an earlier seed is void."""
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


async def require_commitment_before_entry(
    connection: AsyncConnection, event_id: str, epoch: int, opens_at: datetime | None
) -> None:
    """Raises `InvalidRequest` for a lottery whose seed was committed to after entry opened: nobody could verify it.

    Without `opens_at` entry begins when an operator opens the room, which is always later.
    """
    row = select(lottery.c.committed_at).where(of_epoch(event_id, epoch))
    committed_at = (await connection.execute(row)).scalar_one_or_none()
    if opens_at is not None and committed_at is not None and opens_at < committed_at:
        raise InvalidRequest(
            f"queue_opens_at ({opens_at.isoformat()}) is past. A lottery's seed must be committed to before entry "
            "opens, or nobody could verify the draw. Set a future time, or leave it out and open the room by hand."
        )


async def check_ordering_may_change(connection: AsyncConnection, event_id: str, epoch: int, ordering: str) -> None:
    """Raises `RoomStateConflict` once fans have joined: the ordering is fixed then. A changed lottery gets a new seed.
    The caller holds the fence.
    """
    joined = select(place.c.join_seq).where(place.c.event_id == event_id, place.c.epoch == epoch)
    if (await connection.execute(joined.limit(1))).first():
        raise RoomStateConflict("Fans have joined under the present ordering. Reset the queue to change it.")
    if ordering == "lottery":
        await commit_to_seed(connection, event_id, epoch)
