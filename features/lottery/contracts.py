"""The data that a lottery publishes at each stage: anyone can verify a draw from it (`onsale lottery verify`)."""

from typing import Annotated

from pydantic import AwareDatetime, Field, StringConstraints

from features.lottery.arithmetic import ALGORITHM
from features.lottery.rules import LotteryRules
from shared.contracts.fields import Body, ReasonText, ServiceMessage
from shared.contracts.queue import PlaceRef
from shared.errors.problems import Problem

HEX_32 = r"^[0-9a-f]{64}$"


class Entrants(ServiceMessage):
    """The entrants of one lane: entry numbers 1 to `n`, `taken` of them in use, and the Merkle root over all."""

    n: int = Field(ge=0)
    taken: int = Field(0, ge=0)
    hash: str = Field(pattern=HEX_32)


class PublishedLottery(ServiceMessage):
    """A null field is not decided yet. `seed` stays secret until the draw; `commitment` is its SHA-256."""

    event_id: str
    epoch: int
    stage: str
    algorithm: str = ALGORITHM
    commitment: str = Field(pattern=HEX_32)
    committed_at: AwareDatetime
    queue_opens_at: AwareDatetime | None = None
    rules: LotteryRules
    closed_at: AwareDatetime | None = None
    entrants: dict[int, Entrants] = {}  # noqa: RUF012 - each has its own
    counted_at: AwareDatetime | None = None
    public_value: str | None = None
    seed: str | None = Field(None, pattern=HEX_32)
    drawn_at: AwareDatetime | None = None


class EntryProof(ServiceMessage):
    """Proof that an entry number was counted: `receipt` commits to the holder, `path` leads to the Merkle root."""

    event_id: str
    epoch: int
    lane: int = 0
    entry: int = Field(ge=1)
    entrants_n: int = Field(ge=1)
    receipt: str = Field(pattern=HEX_32)
    path: list[str] = Field(max_length=64)


class ProofQuestion(ServiceMessage):
    """A place, as its queue token names it."""

    event_id: str
    epoch: int
    place: PlaceRef


class DrawRequest(Body):
    """The public value of the lottery as it was published, without surrounding spaces."""

    public_value: Annotated[
        str, StringConstraints(strip_whitespace=True, pattern=r"^[^\x00-\x1f]*$", min_length=1, max_length=500)
    ]
    reason: ReasonText | None = None


class NoLottery(Problem, status=404):
    """The waiting room of this event has no lottery."""


class NotEntered(Problem, status=404):
    """There is no proof of entry for this place."""
