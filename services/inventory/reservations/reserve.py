"""Taking: the gate decides for a whole batch in one round trip, the ledger writes it in one transaction.

What the ledger refuses is undone in the gate, which then carries the ledger's word. An outcome nobody knows (the
connection broke) is left to the deadline: 5 s after it was gated the ledger is asked.

How many reservations of one event are written at once: all that came while it sells alone, few beside others.

Whoever comes while a batch is being prepared or answered waits for the whole of it, whichever event it is for.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.catalogue.layout import Layout
from services.inventory.metrics import DRIFT, HOLDS
from services.inventory.problems import NoAdjacentSeats, SeatsTaken
from services.inventory.redis_stock.client import LIVE_UNLIMITED_MAX, HoldDenied, HoldGranted, RedisStock
from services.inventory.reservations.expiry import resolve_due, sync_redis
from services.inventory.reservations.repository import HoldInsert, ReservationRow, read, write
from services.inventory.reservations.selection import Selection
from services.inventory.stock.change import seat_columns
from services.inventory.stock.snapshot import MARKS
from shared.postgres.engine import DB_AWAY, DBAPIError
from shared.redis.client import REDIS_AWAY
from shared.runtime.clock_offsets import ENGINE, said
from shared.runtime.group_commit import GroupCommit
from shared.web.problems import (
    BadCredential,
    ClocksApart,
    HoldExpired,
    IdempotencyKeyReused,
    InternalError,
    LimitExceeded,
    Problem,
    SoldOut,
    Unavailable,
)

RECENT_S = 1.0


class BatchSizer:
    """Asked by every event before each of its batches."""

    def __init__(self, *, alone_max: int, beside_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._alone_max, self._beside_max, self._clock = alone_max, beside_max, clock
        self._sold_s: dict[str, float] = {}
        self._tidied_s = 0.0

    def of(self, event_id: str) -> int:
        """How many this event may write now."""
        now_s = self._clock()
        self._sold_s[event_id] = now_s
        if now_s - self._tidied_s > RECENT_S:
            self._sold_s = {event: at_s for event, at_s in self._sold_s.items() if now_s - at_s <= RECENT_S}
            self._tidied_s = now_s
        return self._beside_max if len(self._sold_s) > 1 else self._alone_max


DUE_MAX = 200
_held, _again = HOLDS.labels("held"), HOLDS.labels("again")
SEAT_WORDS = text(
    "SELECT section_id, position, status FROM inventory.seat s "
    "JOIN (SELECT CAST(:event_id AS text) AS event_id, a.* "
    "FROM unnest(CAST(:section_ids AS text[]), CAST(:positions AS int[])) AS a (section_id, position) OFFSET 0) "
    "AS asked USING (event_id, section_id, position)"
)
LEFT = text(
    "SELECT section_id, seats_remaining FROM inventory.section "
    "WHERE event_id = :event_id AND section_id = ANY(CAST(:sections AS text[]))"
)


@dataclass(slots=True)
class ReservationRequest:
    """One fan's request, ready for the gate, which reads `wanted`: a basket, or what to look for; in that case `basket`
    is empty until the gate has picked. `named`: it came with an Idempotency-Key.
    """

    layout: Layout
    reservation_id: str
    holder: str
    jti: str
    basket: Selection
    wanted: dict[str, Any]
    stock_hash: str
    body_hash: str
    named: bool
    lane: int = 0
    join_seq: int = 0
    email: str | None = None
    reminders: bool = False
    pass_epoch: int = 0


@dataclass(slots=True)
class Reserved:
    """A reservation just made; under an earlier request's id when that one was gated and its process died."""

    ask: ReservationRequest
    reservation_id: str
    until_ms: int


Answer = Reserved | ReservationRow


@dataclass(slots=True)
class _Batch:
    """One batch on its way: an answer per ask, filled in as it becomes known."""

    asks: list[ReservationRequest]
    answers: list[Answer | BaseException | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answers = [None] * len(self.asks)

    def unanswered(self) -> list[int]:
        return [i for i, answer in enumerate(self.answers) if answer is None]


class ReservationBatcher:
    """Takes places of one event for many fans at once."""

    def __init__(
        self,
        db: AsyncEngine,
        redis_stock: RedisStock,
        event_id: str,
        *,
        batch_max: int | Callable[[], int],
        waiting_max: int,
        in_flight_max: int = 1,
    ) -> None:
        self._db, self._redis_stock, self._event_id = db, redis_stock, event_id
        self._following: set[asyncio.Task[None]] = set()
        self._commit: GroupCommit[ReservationRequest, Answer] = GroupCommit(
            self._work, name="reservations", batch_max=batch_max, waiting_max=waiting_max, in_flight_max=in_flight_max
        )

    async def reserve(self, ask: ReservationRequest) -> Answer:
        """The reservation: `Reserved` when it was made now, its `Record` when it was there. Raises a problem."""
        try:
            self._redis_stock.clocks.require()
            answer = await self._commit.submit(ask)
        except Problem as problem:
            HOLDS.labels(problem.slug).inc()
            raise
        (_held if isinstance(answer, Reserved) else _again).inc()
        return answer

    async def close(self) -> None:
        await self._commit.close()
        await asyncio.gather(*self._following)

    async def _work(self, asks: list[ReservationRequest]) -> Sequence[Answer | BaseException]:
        batch = _Batch(asks)
        try:
            gated = await self._hold_reply(batch)
            await self._known(batch, gated)
            await self._write(batch, gated)
        except (Unavailable, *REDIS_AWAY, *DB_AWAY, DBAPIError) as away:
            unknown = Unavailable()
            unknown.__cause__ = away
            return [unknown if answer is None else answer for answer in batch.answers]
        assert all(answer is not None for answer in batch.answers)
        return [answer for answer in batch.answers if answer is not None]

    async def _hold_reply(self, batch: _Batch) -> list[HoldGranted | HoldDenied]:
        """The gate's word for every ask; when due holds stood in the way, the ledger settles them and it is asked once
        more.
        """
        words = await self._redis_stock.hold(self._event_id, [_call(ask) for ask in batch.asks])
        refused = {i: word for i, word in enumerate(words) if isinstance(word, HoldDenied) and word.due}
        if refused:
            due = sorted({reservation_id for word in refused.values() for reservation_id in word.due})[:DUE_MAX]
            now_ms = max(word.now_ms for word in refused.values())
            await resolve_due(self._db, self._redis_stock, self._event_id, due, now_ms=now_ms)
            again = await self._redis_stock.hold(self._event_id, [_call(batch.asks[i]) for i in refused])
            for i, word in zip(refused, again, strict=True):
                words[i] = word
        return words

    async def _known(self, batch: _Batch, words: list[HoldGranted | HoldDenied]) -> None:
        """Answers repeated requests with what they got before, and the rest of the refused with their problem."""
        ids = {
            word.reservation_id if isinstance(word, HoldGranted) else ask.reservation_id
            for ask, word in zip(batch.asks, words, strict=True)
            if (isinstance(word, HoldGranted) and word.word == "again") or (isinstance(word, HoldDenied) and ask.named)
        }
        known: dict[str, ReservationRow] = {}
        if ids:
            async with self._db.connect() as connection:
                known = await read(connection, sorted(ids))
        ended: dict[int, ReservationRow] = {}
        for i, (ask, word) in enumerate(zip(batch.asks, words, strict=True)):
            mine = known.get(ask.reservation_id if isinstance(word, HoldDenied) else word.reservation_id)
            if isinstance(word, HoldDenied):
                batch.answers[i] = _replayed(ask, mine) if mine and ask.named else _problem(ask, word)
            elif word.word == "again" and mine:
                batch.answers[i] = _replayed(ask, mine) if mine.reservation_id == ask.reservation_id else mine
                if not mine.is_live:
                    ended[i] = mine
        if ended:
            await self._free_ended(batch, words, ended)

    async def _free_ended(
        self, batch: _Batch, words: list[HoldGranted | HoldDenied], ended: dict[int, ReservationRow]
    ) -> None:
        """The gate has holds that the ledger has ended: it follows. They answer only the request that made them; any
        other goes to the gate once more.
        """
        await sync_redis(self._redis_stock, self._event_id, list(ended.values()))
        anew = [i for i, mine in ended.items() if mine.reservation_id != batch.asks[i].reservation_id]
        again = await self._redis_stock.hold(self._event_id, [_call(batch.asks[i]) for i in anew])
        for i, word in zip(anew, again, strict=True):
            words[i] = word
            batch.answers[i] = _problem(batch.asks[i], word) if isinstance(word, HoldDenied) else None

    async def _write(self, batch: _Batch, words: list[HoldGranted | HoldDenied]) -> None:
        """Writes what was gated, each id once; a repeat of a hold that is still unwritten shares its fate."""
        by_id: dict[str, list[int]] = {}
        epochs: dict[int, dict[str, HoldInsert]] = {}
        for i in batch.unanswered():
            word, ask = words[i], batch.asks[i]
            assert isinstance(word, HoldGranted)
            if not ask.basket.quantity:
                ask.basket = ask.layout.from_selection(word.basket)
            by_id.setdefault(word.reservation_id, []).append(i)
            epochs.setdefault(word.epoch, {}).setdefault(word.reservation_id, _take(ask, word))
        for epoch, takes in epochs.items():
            outcomes = await write(self._db, self._event_id, epoch, list(takes.values()))
            written: list[HoldInsert] = []
            for take, outcome in zip(takes.values(), outcomes, strict=True):
                if outcome == "written":
                    written.append(take)
                    ask = batch.asks[by_id[take.reservation_id][0]]
                    answer: Answer | BaseException = Reserved(ask, take.reservation_id, take.until_ms)
                else:
                    answer = await self._rejected_by_db(batch.asks[by_id[take.reservation_id][0]], take, outcome)
                for i in by_id[take.reservation_id]:
                    batch.answers[i] = answer
            follow = asyncio.create_task(self._follow(batch.asks[0].layout, written))
            self._following.add(follow)
            follow.add_done_callback(self._following.discard)

    async def _follow(self, layout: Layout, written: Sequence[HoldInsert]) -> None:
        """The gate learns that the ledger has them, which no fan waits for; should it not hear, their deadline asks the
        ledger.
        """
        try:
            grace_ms = layout.grace_s * 1000
            await self._redis_stock.confirm_written(
                self._event_id, {t.reservation_id: t.until_ms + grace_ms for t in written}
            )
        except REDIS_AWAY:
            DRIFT.labels("follow-up").inc()

    async def _rejected_by_db(
        self, ask: ReservationRequest, take: HoldInsert, outcome: object
    ) -> Answer | BaseException:
        """The ledger said no: the gate takes the ledger's word for these places."""
        if outcome == "stale":
            return Unavailable("The stock is being counted anew. Nothing was changed; try again shortly.")
        async with self._db.connect() as connection:
            mine = (await read(connection, [take.reservation_id])).get(take.reservation_id)
            if mine is not None and mine.is_live:
                return _replayed(ask, mine)
            await self._redis_stock.release(self._event_id, [take.reservation_id])
            if mine is not None:
                return _replayed(ask, mine)
            if not isinstance(outcome, str):
                failed = InternalError("This reservation could not be written.")
                failed.__cause__ = outcome if isinstance(outcome, BaseException) else None
                return failed
            DRIFT.labels("ledger").inc()
            seats = seat_columns((section_id, position) for section_id, position, *_ in take.basket.seats)
            rows = list(await connection.execute(SEAT_WORDS, {"event_id": self._event_id, **seats}))
            sections = [ticket[0] for ticket in take.basket.ga]
            left = list(await connection.execute(LEFT, {"event_id": self._event_id, "sections": sections}))
        gone = [row for row in rows if row.status != "available"]
        places = [part for row in gone for part in (row.section_id, row.position, "*", MARKS[row.status])]
        await self._redis_stock.set_positions(self._event_id, places)
        await self._redis_stock.lower_available(self._event_id, {row.section_id: row.seats_remaining for row in left})
        taken = {(row.section_id, row.position) for row in gone}
        if taken:
            return SeatsTaken(seats=[seat_id for s, p, seat_id, _ in take.basket.seats if (s, p) in taken])
        return SoldOut(available={row.section_id: row.seats_remaining for row in left})


def _call(ask: ReservationRequest) -> dict[str, Any]:
    layout = ask.layout
    return {
        "reservation_id": ask.reservation_id, "holder": ask.holder, "jti": ask.jti, "pass_epoch": ask.pass_epoch,
        "stock_print": ask.stock_hash, "body_print": ask.body_hash,
        **ask.wanted, "hold_ttl_ms": layout.variant_for(ask.holder).hold_ttl_s * 1000,
        "tickets_max": layout.tickets_per_customer,
        "live_max": layout.active_reservations_per_customer or LIVE_UNLIMITED_MAX,
    }  # fmt: skip


def _take(ask: ReservationRequest, word: HoldGranted) -> HoldInsert:
    return HoldInsert(
        word.reservation_id, ask.holder, ask.basket, ask.layout.currency, word.until_ms,
        f"{ask.stock_hash}.{ask.body_hash}", lane=ask.lane, join_seq=ask.join_seq, email=ask.email,
        reminders=ask.reminders, arm=ask.layout.variant_for(ask.holder),
    )  # fmt: skip


def _replayed(ask: ReservationRequest, record: ReservationRow) -> ReservationRow | Problem:
    """What the same key got before; a tombstone (no fingerprint) stands for a write that came too late."""
    if not record.fingerprint:
        return HoldExpired("This reservation was not written in time. Ask again with another Idempotency-Key.")
    if record.holder != ask.holder or record.fingerprint != f"{ask.stock_hash}.{ask.body_hash}":
        return IdempotencyKeyReused()
    return record


def _problem(ask: ReservationRequest, refusal: HoldDenied) -> Problem:
    """The gate's word as the fan reads it."""
    match refusal.word:
        case "seats-taken":
            taken = {tuple(part.split(":")) for part in refusal.detail.split(";")}
            seats = [seat_id for s, p, seat_id, _ in ask.basket.seats if (s, str(p)) in taken]
            return SeatsTaken(f"Taken meanwhile: {', '.join(seats)}.", seats=seats)
        case "no-adjacent-seats":
            return NoAdjacentSeats(f"At most {refusal.detail} seats are together.", together=int(refusal.detail))
        case "sold-out":
            pairs = [part.split("*") for part in refusal.detail.split(";")]
            return SoldOut(available={section_id: int(n) for section_id, n in pairs})
        case "limit-exceeded":
            allowed = getattr(ask.layout, refusal.detail) or LIVE_UNLIMITED_MAX
            return LimitExceeded(f"{refusal.detail} is {allowed}.", limit=refusal.detail, allowed=allowed)
        case "reused":
            return IdempotencyKeyReused()
        case "revoked":
            return BadCredential("This pass has ended.")
        case "clocks-apart":
            return ClocksApart(said(ENGINE, int(refusal.detail)))
        case _:
            return Unavailable("The stock is being counted anew. Nothing was changed; try again shortly.")
