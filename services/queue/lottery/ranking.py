"""In which order a line is called: as people joined, or as their lottery was drawn.

The ledger and every token keep the number somebody entered with. The engine's bits, calls and heads are in ranks once
the lottery is drawn; `Line` and the recovery translate, so nobody else has to know. Before the draw, and for late
comers, both are the same number.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import and_, case, delete, func, insert, select

from services.queue.problems import RoomStateConflict
from services.queue.tables import lottery, place, room
from shared.contracts.frames import LaneDraw, LotteryFrame
from shared.postgres.engine import AsyncConnection
from shared.rules.lottery_ranking import draw_key, order
from shared.web.problems import InvalidRequest

SECRET_BYTES = 32
LotteryStage = Literal["open", "closed", "drawn"]
OF_ROOM = and_(lottery.c.event_id == room.c.event_id, lottery.c.epoch == room.c.epoch)
COLUMNS = (
    lottery.c.closed_at,
    lottery.c.counted_at,
    lottery.c.entrants,
    lottery.c.public_value,
    case((lottery.c.drawn_at.is_not(None), lottery.c.seed)).label("seed"),
)


@dataclass(frozen=True)
class Ranking:
    """How far the lottery of one epoch is, and the ranks it gave; without a stage there is none."""

    epoch: int
    stage: LotteryStage | None = None
    counted: bool = False
    lanes: Mapping[int, LaneDraw] = field(default_factory=dict)

    @property
    def pending(self) -> bool:
        """Nobody is called before the draw."""
        return self.stage is not None and self.stage != "drawn"

    @property
    def generation(self) -> str:
        """The epoch as the engine knows it: with `.1` behind it once ranks count, so that whoever still counts in
        entry numbers is refused.
        """
        return f"{self.epoch}.1" if self.stage == "drawn" else str(self.epoch)

    def rank(self, lane: int, join_seq: int) -> int:
        """Where this entry number stands in the line."""
        drawn = self.lanes.get(lane)
        return order(drawn.entrants_n, bytes.fromhex(drawn.key)).rank(join_seq) if drawn else join_seq

    def ranks(self, lane: int, join_seqs: Iterable[int]) -> Sequence[int]:
        """Where each of these stands."""
        drawn = self.lanes.get(lane)
        numbers = list(join_seqs)
        return list(map(order(drawn.entrants_n, bytes.fromhex(drawn.key)).rank, numbers)) if drawn else numbers

    def entry(self, lane: int, rank: int) -> int:
        """Whose place in the line this is."""
        drawn = self.lanes.get(lane)
        return order(drawn.entrants_n, bytes.fromhex(drawn.key)).entry(rank) if drawn else rank

    def runs(self, lane: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The ranks of a run of entry numbers, as runs."""
        drawn = self.lanes.get(lane)
        entrants_n = drawn.entrants_n if drawn else 0
        for entry in range(first, min(last, entrants_n) + 1):
            rank = self.rank(lane, entry)
            yield rank, rank
        if last > entrants_n:
            yield max(first, entrants_n + 1), last

    def frame(self) -> LotteryFrame | None:
        """What a line's frame says of it."""
        return LotteryFrame(stage=self.stage, lanes=dict(self.lanes)) if self.stage else None


def draw_of(row: Mapping[str, Any]) -> Ranking:
    """From a room's row with `COLUMNS`."""
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


async def commit(connection: AsyncConnection, event_id: str, epoch: int) -> None:
    """Makes the secrets of a lottery nobody has entered yet; one that was there is void."""
    await connection.execute(delete(lottery).where(lottery.c.event_id == event_id, lottery.c.epoch == epoch))
    await connection.execute(
        insert(lottery).values(
            event_id=event_id,
            epoch=epoch,
            seed=secrets.token_bytes(SECRET_BYTES),
            blind=secrets.token_bytes(SECRET_BYTES),
            committed_at=func.clock_timestamp(),
        )
    )


async def committed_in_time(connection: AsyncConnection, event_id: str, epoch: int, opens_at: datetime | None) -> None:
    """Raises `InvalidRequest` for a lottery whose secret was committed to after entry opened: nobody could verify it.
    Without an opening of its own entry begins when an operator opens the room, which is always later.
    """
    which = select(lottery.c.committed_at).where(lottery.c.event_id == event_id, lottery.c.epoch == epoch)
    committed_at = (await connection.execute(which)).scalar_one_or_none()
    if opens_at is not None and committed_at is not None and opens_at < committed_at:
        raise InvalidRequest(
            f"queue_opens_at ({opens_at.isoformat()}) is past. A lottery's seed is committed to before entry opens, or "
            "nobody could verify the draw. Set a time to come, or leave it out and open the room by hand."
        )


async def change_order(connection: AsyncConnection, event_id: str, epoch: int, ordering: str) -> None:
    """The rules of an order bind from the first place on; new ones get a new commitment. The caller holds the fence."""
    entered = select(place.c.join_seq).where(place.c.event_id == event_id, place.c.epoch == epoch)
    if (await connection.execute(entered.limit(1))).first():
        raise RoomStateConflict("Fans have joined under the present order; a reset would start the line anew.")
    if ordering == "lottery":
        await commit(connection, event_id, epoch)
