"""Checks a lottery from what it published, and nothing else. Each check is a sentence, whether it holds, and why."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from shared.contracts.lottery import EntryProof, PublishedLottery
from shared.rules.lottery_ranking import ALGORITHM, Order, climb, commitment, draw_key, leaf

EVERY_RANK_UP_TO = 1_000_000
SAMPLE = 100_000


class Check(NamedTuple):
    """`holds` is `None` for what cannot be checked at this stage."""

    what: str
    holds: bool | None
    detail: str


class Asked(NamedTuple):
    """What somebody knows from elsewhere: their entry and place, the value as they read it, an earlier document."""

    lane: int = 0
    entry: int | None = None
    place: int | None = None
    public_value: str | None = None
    earlier: PublishedLottery | None = None
    proof: EntryProof | None = None


def check(told: PublishedLottery, asked: Asked) -> list[Check]:
    """Everything that can be checked at the lottery's stage."""
    checks = [*_times(told), *_draw(told, asked)]
    if asked.earlier is not None:
        checks += _earlier(told, asked.earlier)
    if asked.proof is not None:
        checks.append(_proof(told, asked.proof))
    if asked.entry is not None:
        checks.append(_place(told, asked))
    return checks


def orders(told: PublishedLottery) -> dict[int, Order]:
    """The order of each lane, from seed and public value; empty before the draw."""
    if told.seed is None or told.public_value is None:
        return {}
    seed, value = bytes.fromhex(told.seed), told.public_value
    return {
        lane: Order(
            of.n,
            draw_key(
                seed, value, event_id=told.event_id, epoch=told.epoch, lane=lane, entrants_n=of.n, entrants_hash=of.hash
            ),
        )
        for lane, of in told.entrants.items()
    }


def _times(told: PublishedLottery) -> Iterator[Check]:
    known_at = told.rules.public_value.known_at
    yield Check("it is drawn by the rules we know", told.algorithm == ALGORITHM, told.algorithm)
    opened, by = ("opened", told.queue_opens_at) if told.queue_opens_at else ("closed", told.closed_at)
    early = None if by is None else told.committed_at <= by
    yield Check(f"the seed was committed to before entry {opened}", early, _at(told.committed_at))
    closed = None if told.closed_at is None else told.closed_at >= told.rules.entry_closes_at
    yield Check("entry closed when it was to close, not before", closed, _at(told.closed_at))
    counted = None if told.counted_at is None else told.counted_at < known_at
    yield Check("the entrants were published before the value was known", counted, _at(told.counted_at))
    drawn = None if told.drawn_at is None else told.drawn_at >= known_at
    yield Check("it was drawn after the value was known", drawn, _at(told.drawn_at))


def _draw(told: PublishedLottery, asked: Asked) -> Iterator[Check]:
    if told.seed is None or told.public_value is None:
        yield Check("the seed is the one committed to", None, "not drawn yet; the commitment is " + told.commitment)
        return
    yield Check("the seed is the one committed to", commitment(bytes.fromhex(told.seed)) == told.commitment, told.seed)
    if asked.public_value is None:
        detail = f"“{told.public_value}”: compare with {told.rules.public_value.what}, or name it by --public-value"
        yield Check("the public value is the one that became known", None, detail)
    else:
        same = asked.public_value.strip() == told.public_value
        yield Check("the public value is the one that became known", same, f"“{told.public_value}”")
    for lane, drawn in orders(told).items():
        yield _permutation(lane, drawn)


def _permutation(lane: int, drawn: Order) -> Check:
    n = drawn.entrants_n
    if n > EVERY_RANK_UP_TO:
        holds = all(drawn.entry(drawn.rank(entry)) == entry for entry in range(1, SAMPLE + 1))
        return Check(f"lane {lane}: every entrant has one place", holds, f"{SAMPLE:,} of {n:,} computed")
    holds = all(times == 1 for times in _counts(drawn))
    return Check(f"lane {lane}: every entrant has one place", holds, f"all {n:,} computed")


def _counts(drawn: Order) -> list[int]:
    counts = [0] * drawn.entrants_n
    for entry in range(1, drawn.entrants_n + 1):
        counts[drawn.rank(entry) - 1] += 1
    return counts


def _earlier(told: PublishedLottery, before: PublishedLottery) -> Iterator[Check]:
    same_line = (told.event_id, told.epoch) == (before.event_id, before.epoch)
    yield Check("it is the lottery of the earlier document", same_line, f"{told.event_id}, epoch {told.epoch}")
    promised = told.commitment == before.commitment and told.rules == before.rules
    yield Check("commitment and rules are those of the earlier document", promised, before.commitment)
    if before.counted_at is not None:
        yield Check("so are the entrants", told.entrants == before.entrants, _count(before))
    if before.seed is not None:
        drawn = (told.seed, told.public_value) == (before.seed, before.public_value)
        yield Check("so are seed and public value", drawn, str(before.public_value))


def _proof(told: PublishedLottery, proof: EntryProof) -> Check:
    of = told.entrants.get(proof.lane)
    what = f"entry {proof.entry} was counted with its owner"
    if of is None:
        return Check(what, None, "the entrants are not published yet")
    at_home = (proof.event_id, proof.epoch, proof.entrants_n) == (told.event_id, told.epoch, of.n)
    top = climb(leaf(proof.lane, proof.entry, proof.receipt), proof.entry - 1, of.n, proof.path)
    return Check(what, at_home and proof.entry <= of.n and top == of.hash, f"hash {of.hash}")


def _place(told: PublishedLottery, asked: Asked) -> Check:
    drawn = orders(told).get(asked.lane)
    if drawn is None or asked.entry is None:
        return Check(f"entry {asked.entry} has its place", None, "not drawn yet")
    rank = drawn.rank(asked.entry)
    late = " (a late comer: keeps its number)" if asked.entry > drawn.entrants_n else ""
    what = f"entry {asked.entry} got place {asked.place or rank}"
    return Check(what, asked.place is None or asked.place == rank, f"computed: {rank}{late}")


def _at(at: datetime | None) -> str:
    return "not yet" if at is None else f"{at:%F %T}"


def _count(told: PublishedLottery) -> str:
    return ", ".join(f"lane {lane}: {of.n:,} ({of.hash[:16]}…)" for lane, of in told.entrants.items())
