"""Verification of a lottery from what it published and nothing else, as anybody can do it.

Each check is a statement, whether it holds, and the detail that shows why.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from features.lottery.arithmetic import ALGORITHM, Permutation, climb, commitment, draw_key, leaf
from features.lottery.contracts import EntryProof, PublishedLottery

COMPUTE_ALL_UP_TO = 1_000_000
SAMPLE = 100_000


class Verified(NamedTuple):
    """A statement about the lottery; `holds` is None when it cannot be checked at this stage."""

    statement: str
    holds: bool | None
    detail: str


class Evidence(NamedTuple):
    """What a fan knows from elsewhere: entry and place, the public value, an earlier document, a proof of entry."""

    lane: int = 0
    entry: int | None = None
    place: int | None = None
    public_value: str | None = None
    earlier: PublishedLottery | None = None
    proof: EntryProof | None = None


def check(lottery: PublishedLottery, evidence: Evidence) -> list[Verified]:
    """All checks that are possible at the lottery's stage and with this evidence."""
    checks = [*_times(lottery), *_drawing(lottery, evidence)]
    if evidence.earlier is not None:
        checks += _earlier(lottery, evidence.earlier)
    if evidence.proof is not None:
        checks.append(_proof(lottery, evidence.proof))
    if evidence.entry is not None:
        checks.append(_rank(lottery, evidence))
    return checks


def drawn_orders(lottery: PublishedLottery) -> dict[int, Permutation]:
    """The drawn order of each lane, computed from seed and public value; empty before the draw."""
    if lottery.seed is None or lottery.public_value is None:
        return {}
    seed, value = bytes.fromhex(lottery.seed), lottery.public_value
    return {
        lane: Permutation(
            entrants.n,
            draw_key(
                seed,
                value,
                event_id=lottery.event_id,
                epoch=lottery.epoch,
                lane=lane,
                entrants_n=entrants.n,
                entrants_hash=entrants.hash,
            ),
        )
        for lane, entrants in lottery.entrants.items()
    }


def _times(lottery: PublishedLottery) -> Iterator[Verified]:
    closed_at, counted_at, drawn_at = lottery.closed_at, lottery.counted_at, lottery.drawn_at
    closes_at, known_at = lottery.rules.entry_closes_at, lottery.rules.public_value.known_at
    opened, by = ("opened", lottery.queue_opens_at) if lottery.queue_opens_at else ("closed", closed_at)
    yield Verified("it is drawn by the rules we know", lottery.algorithm == ALGORITHM, lottery.algorithm)
    for statement, at, holds in (
        (f"the seed was committed to before entry {opened}", lottery.committed_at, by and lottery.committed_at <= by),
        ("entry closed when it was to close, not before", closed_at, closed_at and closed_at >= closes_at),
        ("the entrants were published before the value was known", counted_at, counted_at and counted_at < known_at),
        ("it was drawn after the value was known", drawn_at, drawn_at and drawn_at >= known_at),
    ):
        yield Verified(statement, holds if isinstance(holds, bool) else None, _at(at))


def _drawing(lottery: PublishedLottery, evidence: Evidence) -> Iterator[Verified]:
    if lottery.seed is None or lottery.public_value is None:
        yield Verified(
            "the seed is the one committed to", None, "not drawn yet; the commitment is " + lottery.commitment
        )
        return
    yield Verified(
        "the seed is the one committed to", commitment(bytes.fromhex(lottery.seed)) == lottery.commitment, lottery.seed
    )
    if evidence.public_value is None:
        source = f"compare with {lottery.rules.public_value.what}, or name it by --public-value"
        yield Verified("the public value is the one that became known", None, f"“{lottery.public_value}”: {source}")
    else:
        same = evidence.public_value.strip() == lottery.public_value
        yield Verified("the public value is the one that became known", same, f"“{lottery.public_value}”")
    for lane, drawn in drawn_orders(lottery).items():
        yield _permutation(lane, drawn)


def _permutation(lane: int, drawn: Permutation) -> Verified:
    n = drawn.entrants_n
    if n > COMPUTE_ALL_UP_TO:
        holds = all(drawn.entry(drawn.rank(entry)) == entry for entry in range(1, SAMPLE + 1))
    else:
        holds = sorted(drawn.rank(entry) for entry in range(1, n + 1)) == [*range(1, n + 1)]
    computed = f"{SAMPLE:,} of {n:,}" if n > COMPUTE_ALL_UP_TO else f"all {n:,}"
    return Verified(f"lane {lane}: every entrant has one place", holds, f"{computed} computed")


def _earlier(lottery: PublishedLottery, before: PublishedLottery) -> Iterator[Verified]:
    same_line = (lottery.event_id, lottery.epoch) == (before.event_id, before.epoch)
    yield Verified("it is the lottery of the earlier document", same_line, f"{lottery.event_id}, epoch {lottery.epoch}")
    promised = lottery.commitment == before.commitment and lottery.rules == before.rules
    yield Verified("commitment and rules are those of the earlier document", promised, before.commitment)
    if before.counted_at is not None:
        yield Verified("so are the entrants", lottery.entrants == before.entrants, _count(before))
    if before.seed is not None:
        drawn = (lottery.seed, lottery.public_value) == (before.seed, before.public_value)
        yield Verified("so are seed and public value", drawn, str(before.public_value))


def _proof(lottery: PublishedLottery, proof: EntryProof) -> Verified:
    entrants = lottery.entrants.get(proof.lane)
    statement = f"entry {proof.entry} was counted with its owner"
    if entrants is None:
        return Verified(statement, None, "the entrants are not published yet")
    same_lottery = (proof.event_id, proof.epoch, proof.entrants_n) == (lottery.event_id, lottery.epoch, entrants.n)
    root_hash = climb(leaf(proof.lane, proof.entry, proof.receipt), proof.entry - 1, entrants.n, proof.path)
    return Verified(
        statement, same_lottery and proof.entry <= entrants.n and root_hash == entrants.hash, f"hash {entrants.hash}"
    )


def _rank(lottery: PublishedLottery, evidence: Evidence) -> Verified:
    drawn = drawn_orders(lottery).get(evidence.lane)
    if drawn is None or evidence.entry is None:
        return Verified(f"entry {evidence.entry} has its place", None, "not drawn yet")
    rank = drawn.rank(evidence.entry)
    late = " (a late comer: keeps its number)" if evidence.entry > drawn.entrants_n else ""
    statement = f"entry {evidence.entry} got place {evidence.place or rank}"
    return Verified(statement, evidence.place is None or evidence.place == rank, f"computed: {rank}{late}")


def _at(at: datetime | None) -> str:
    return "not yet" if at is None else f"{at:%F %T}"


def _count(lottery: PublishedLottery) -> str:
    return ", ".join(
        f"lane {lane}: {entrants.n:,} ({entrants.hash[:16]}…)" for lane, entrants in lottery.entrants.items()
    )
