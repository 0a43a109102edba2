"""The ranking that a lottery drew, in the queue and in each gateway."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from features.lottery.arithmetic import Permutation, permutation
from shared.contracts.frames import LineFrame, RankedLane, RankingFrame
from shared.contracts.ranking import Ranking

LotteryStage = Literal["open", "closed", "drawn"]
PENDING = "The sale begins as soon as the lottery is drawn."


@dataclass(frozen=True)
class LotteryRanking(Ranking):
    """The stage of the lottery of one epoch and the ranks it drew. Before the draw, and for fans who joined after entry
    closed, rank and entry number are the same.
    """

    stage: LotteryStage = "open"
    counted: bool = False
    lanes: Mapping[int, RankedLane] = field(default_factory=dict)

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

    def to_frame(self) -> RankingFrame:
        return RankingFrame(stage=self.stage, lanes=dict(self.lanes))


def ranking_of_frame(frame: LineFrame) -> LotteryRanking:
    """As the queue published it."""
    assert frame.lottery is not None, "asked for frames of lotteries only"
    stage, lanes, drawn = frame.lottery.stage, frame.lottery.lanes, frame.lottery.stage == "drawn"
    return LotteryRanking(frame.epoch, None if drawn else PENDING, ranked=drawn, stage=stage, lanes=lanes)
