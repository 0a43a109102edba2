"""The order in which a line is called: by the numbers of the joins, unless a feature brings another ordering.

The database and every token keep the number a fan joined with. In Redis, bits, calls and heads are in ranks; where
those are other numbers, `RedisLine` and `Recovery` translate.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from shared.contracts.frames import LineFrame, RankingFrame
from shared.features import load, orderings

JOINS = "fifo"
if TYPE_CHECKING:
    OrderingName = str
else:
    OrderingName = Literal[JOINS, *orderings()]
UNKNOWN_PENDING = "The sale begins later."  # of an ordering that is not installed: any order would be a wrong one


@dataclass(frozen=True)
class Ranking:
    """The ranks of one epoch's line; this one's are the numbers of the joins.

    `pending`: why nobody is called yet, in words for fans. `ranked`: ranks are other numbers than those of the joins.
    """

    epoch: int
    pending: str | None = None
    ranked: bool = False

    @property
    def epoch_token(self) -> str:
        """The epoch in Redis, followed by `.1` once ranks count, so that a process that still counts in the numbers of
        the joins is refused.
        """
        return f"{self.epoch}.1" if self.ranked else str(self.epoch)

    def rank(self, lane: int, join_seq: int) -> int:
        return join_seq

    def ranks(self, lane: int, join_seqs: Iterable[int]) -> list[int]:
        return list(join_seqs)

    def entry(self, lane: int, rank: int) -> int:
        """The number that was given with the join that has this rank."""
        return rank

    def to_frame(self) -> RankingFrame | None:
        """The part of the line's frame about it, from which gateways make the same ranking."""
        return None


def ranking_of(frame: LineFrame) -> Ranking:
    """The ranking of this frame's line."""
    if frame.lottery is None:
        return Ranking(frame.epoch)
    brought = orderings().get("lottery")  # the only ordering that a frame has a field for
    return cast("Ranking", load(brought.ranking)(frame)) if brought else Ranking(frame.epoch, UNKNOWN_PENDING)
