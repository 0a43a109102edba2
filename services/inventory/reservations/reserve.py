"""Reserve: Redis grants or denies the holds of a whole batch in one round trip, PostgreSQL writes them in one
transaction.

If PostgreSQL refuses a hold, it is undone in Redis, which holds over PostgreSQL's state of the places. If the outcome
is unknown because a connection broke, the hold's short first deadline (5 s) makes the expiry worker read PostgreSQL.

A request that arrives while a batch is under way waits for all of it, so batches are small while several events sell.
"""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cachetools import TTLCache
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.layout.layout import Layout
from services.inventory.layout.selection import SeatPosition, Selection, StockSelection, section_of
from services.inventory.metrics import DRIFT, HOLD_OUTCOMES
from services.inventory.problems import NoAccessiblePlaces, NoAdjacentSeats, SeatsTaken
from services.inventory.redis_stock.client import (
    LIVE_UNLIMITED_MAX,
    Change,
    HoldDenied,
    HoldGranted,
    RedisStock,
    as_in_db,
    ended,
    written,
)
from services.inventory.redis_stock.push import push_stock
from services.inventory.reservations.expiry import resolve_due
from services.inventory.reservations.single_seats import SingleSeats, left_by_hold, refused
from services.inventory.store.change import DirtySet
from services.inventory.store.reservations import (
    HoldInsert,
    ReservationRow,
    read_reservations,
    write_holds,
)
from shared.concurrency.coalescing import GroupCommit
from shared.contracts.event_parts.price_types import QUOTA
from shared.errors.problems import (
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
from shared.postgres.engine import DB_AWAY, DBAPIError
from shared.redis.client import REDIS_AWAY
from shared.runtime.clock import REDIS, describe_offset
from shared.runtime.tracing import sale_log

CONTENTION_WINDOW_S = 1.0


class BatchSizer:
    """The largest batch an event may write: large while it sells alone, small while others sell, too."""

    def __init__(
        self, *, batch_max: int, batch_max_contended: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._batch_max, self._batch_max_contended = batch_max, batch_max_contended
        self._selling: TTLCache[str, None] = TTLCache(math.inf, CONTENTION_WINDOW_S, timer=clock)

    def next_max(self, event_id: str) -> int:
        """The largest batch for this event now."""
        self._selling[event_id] = None
        return self._batch_max_contended if len(self._selling) > 1 else self._batch_max


DUE_MAX = 200
SECTIONS_NAMED_MAX = 3
_held, _repeated = HOLD_OUTCOMES.labels("held"), HOLD_OUTCOMES.labels("again")


@dataclass(slots=True)
class ReservationRequest:
    """One fan's request. Redis reads `redis_request`: a selection, or the criteria for best available; then `selection`
    is empty until Redis has chosen. `has_key`: it came with an Idempotency-Key.
    """

    layout: Layout
    reservation_id: str
    holder: str
    jti: str
    selection: Selection
    redis_request: dict[str, Any]
    stock_hash: str
    body_hash: str
    has_key: bool
    lane: int = 0
    join_seq: int = 0
    email: str | None = None
    reminders: bool = False
    pass_epoch: int = 0


@dataclass(slots=True)
class Reserved:
    """A reservation made now; it has an earlier request's id if Redis granted that one and its process died. It says
    which seats the choice left alone, if the event tells.
    """

    request: ReservationRequest
    reservation_id: str
    until_ms: int
    single_seats: SingleSeats | None = None


ReserveResult = Reserved | ReservationRow


@dataclass(slots=True)
class _Attempt:
    """A request of a batch, Redis' reply to it and, as soon as it is known, its result."""

    request: ReservationRequest
    reply: HoldGranted | HoldDenied = field(default_factory=lambda: HoldDenied("not-ready"))
    answer: ReserveResult | BaseException | None = None

    @property
    def reservation_id(self) -> str:
        """The id that Redis granted, else that of the request."""
        return (self.reply if isinstance(self.reply, HoldGranted) else self.request).reservation_id


class ReservationBatcher:
    """Makes reservations of one event in batches."""

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
        self._confirming: set[asyncio.Task[None]] = set()
        self._commit: GroupCommit[ReservationRequest, ReserveResult] = GroupCommit(
            self._run, name="reservations", batch_max=batch_max, waiting_max=waiting_max, in_flight_max=in_flight_max
        )

    async def reserve(self, request: ReservationRequest) -> ReserveResult:
        """`Reserved` if it was made now, its row if it existed. Raises a problem."""
        try:
            self._redis_stock.clocks.require()
            answer = await self._commit.submit(request)
        except Problem as problem:
            HOLD_OUTCOMES.labels(problem.slug).inc()
            raise
        except Exception:
            HOLD_OUTCOMES.labels("failed").inc()
            raise
        (_held if isinstance(answer, Reserved) else _repeated).inc()
        return answer

    async def close(self) -> None:
        await self._commit.close()
        await asyncio.gather(*self._confirming)

    async def _run(self, requests: list[ReservationRequest]) -> Sequence[ReserveResult | BaseException]:
        batch, unknown = [_Attempt(request) for request in requests], None
        try:
            await self._hold(batch)
            await self._hold_after_due(batch)
            await self._answer_known(batch)
            await self._write([attempt for attempt in batch if attempt.answer is None])
            assert all(attempt.answer is not None for attempt in batch)
        except (Unavailable, *REDIS_AWAY, *DB_AWAY, DBAPIError) as away:
            unknown = Unavailable()
            unknown.__cause__ = away
        return [attempt.answer or unknown or Unavailable() for attempt in batch]

    async def _hold(self, attempts: Sequence[_Attempt]) -> None:
        replies = await self._redis_stock.hold(self._event_id, [_hold_arguments(a.request) for a in attempts])
        for attempt, reply in zip(attempts, replies, strict=True):
            attempt.reply = reply

    async def _hold_after_due(self, batch: Sequence[_Attempt]) -> None:
        """If due holds are in the way, PostgreSQL resolves them and the request is repeated once."""
        denials = [(a, reply) for a in batch if isinstance(reply := a.reply, HoldDenied) and reply.due]
        if denials:
            due = sorted({reservation_id for _, reply in denials for reservation_id in reply.due})[:DUE_MAX]
            now_ms = max(reply.now_ms for _, reply in denials)
            await resolve_due(self._db, self._redis_stock, self._event_id, due, now_ms=now_ms)
            await self._hold([attempt for attempt, _ in denials])

    async def _answer_known(self, batch: Sequence[_Attempt]) -> None:
        """Answers repeated requests with their reservation, and denied ones with their problem.

        Redis may have holds that have ended in PostgreSQL, and releases them now. Such a hold answers only the request
        that made it; other requests are repeated once.
        """
        ids = {
            a.reservation_id
            for a in batch
            if a.reply.outcome == "again" or (a.request.has_key and isinstance(a.reply, HoldDenied))
        }
        known: dict[str, ReservationRow] = {}
        if ids:
            async with self._db.connect() as connection:
                known = await read_reservations(connection, [(self._event_id, r) for r in sorted(ids)])
        over: list[ReservationRow] = []
        anew: list[_Attempt] = []
        for attempt in batch:
            request, reply, row = attempt.request, attempt.reply, known.get(attempt.reservation_id)
            if isinstance(reply, HoldDenied):
                attempt.answer = _replayed(request, row) if row and request.has_key else _problem(request, reply)
            elif reply.outcome == "again" and row:
                is_own = row.reservation_id == request.reservation_id
                attempt.answer = _replayed(request, row) if is_own else row
                if not row.is_live:
                    over.append(row)
                    anew += [] if is_own else [attempt]
        if over:
            await self._redis_stock.follow(self._event_id, [as_in_db(row) for row in over])
            await self._hold(anew)
            for attempt in anew:
                reply = attempt.reply
                attempt.answer = _problem(attempt.request, reply) if isinstance(reply, HoldDenied) else None

    async def _write(self, granted: Sequence[_Attempt]) -> None:
        """Writes the granted holds, each id once; repeats of an unwritten hold get the same result."""
        by_id: dict[str, list[_Attempt]] = {}
        replies: dict[str, HoldGranted] = {}
        epochs: dict[int, dict[str, HoldInsert]] = {}
        for attempt in granted:
            request, reply = attempt.request, attempt.reply
            assert isinstance(reply, HoldGranted)
            if not request.selection.quantity:
                request.selection = request.layout.from_selection(reply.selection)
            elif "pools" in request.redis_request:
                request.selection = request.selection.counted_as(StockSelection.parse(reply.selection))
            by_id.setdefault(reply.reservation_id, []).append(attempt)
            replies.setdefault(reply.reservation_id, reply)
            epochs.setdefault(reply.epoch, {}).setdefault(reply.reservation_id, _hold_insert(request, reply))
        for epoch, holds in epochs.items():
            outcomes = await write_holds(self._db, self._event_id, epoch, list(holds.values()))
            kept: list[Change] = []
            for hold, outcome in zip(holds.values(), outcomes, strict=True):
                request = by_id[hold.reservation_id][0].request
                if outcome == "written":
                    release_at_ms = hold.until_ms + request.layout.grace_s * 1000
                    kept.append(written(hold.reservation_id, release_at_ms))
                    reply = replies[hold.reservation_id]
                    single = left_by_hold(request.layout, reply) if reply.left_alone else None
                    answer: ReserveResult | BaseException = Reserved(
                        request, hold.reservation_id, hold.until_ms, single
                    )  # fmt: skip
                else:
                    answer = await self._rejected_by_db(request, hold, outcome)
                for attempt in by_id[hold.reservation_id]:
                    attempt.answer = answer
            if sale_log.on:
                ids = [change["id"] for change in kept]
                tickets = sum(holds[reservation_id].selection.quantity for reservation_id in ids)
                sale_log.write("sale.seats", event_id=self._event_id, status="held", tickets=tickets,
                               reservations=ids[:5])  # fmt: skip
            follow = asyncio.create_task(self._confirm_written(kept))
            self._confirming.add(follow)
            follow.add_done_callback(self._confirming.discard)

    async def _confirm_written(self, kept: Sequence[Change]) -> None:
        """Gives the holds their own deadlines in Redis, in the background. If that fails, the short deadline makes the
        expiry worker do it.
        """
        try:
            await self._redis_stock.follow(self._event_id, kept)
        except REDIS_AWAY:
            DRIFT.labels("sync").inc()

    async def _rejected_by_db(
        self, request: ReservationRequest, hold: HoldInsert, outcome: object
    ) -> ReserveResult | BaseException:
        """PostgreSQL refused a hold: Redis holds over PostgreSQL's state of its places."""
        if outcome == "stale":
            return Unavailable("The stock is being rebuilt. Nothing was reserved. Try again shortly.")
        async with self._db.connect() as connection:
            found = await read_reservations(connection, [(self._event_id, hold.reservation_id)])
        row = found.get(hold.reservation_id)
        if row is None or not row.is_live:
            await self._redis_stock.follow(self._event_id, [ended(hold.reservation_id, version=0)])
        if row is not None:
            return _replayed(request, row)
        if not isinstance(outcome, str):
            failed = InternalError("The reservation could not be written. Try again.")
            failed.__cause__ = outcome if isinstance(outcome, BaseException) else None
            return failed
        DRIFT.labels("hold-refused").inc()
        stock = hold.selection.stock
        wanted = DirtySet(set(stock.seats), set(stock.ga))
        pushed = await push_stock(self._db, self._redis_stock, self._event_id, wanted, refused=True)
        if pushed is None:
            return Unavailable("The stock is being changed. Nothing was reserved. Try again shortly.")
        left = {row.section_id: row.seats_remaining for row in pushed.ga}
        if taken := [seat for seat, status in pushed.seats.items() if status != "available"]:
            return SeatsTaken(seats=_seat_ids(hold.selection, taken))
        short = {s: left.get(s, 0) for s, n in stock.ga.items() if left.get(s, 0) < n}
        if not short and stock.seats:  # they are free, but not of the allotment that this process knows
            return Unavailable("The stock is being changed. Nothing was reserved. Try again shortly.")
        return sold_out(request.layout, short)


class Batchers(dict[str, ReservationBatcher]):
    """One batcher per event, made when it is needed, so that no event waits for the batches of another."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, sizer: BatchSizer, *, waiting_max: int) -> None:
        super().__init__()
        self._db, self._redis_stock, self._sizer, self._waiting_max = db, redis_stock, sizer, waiting_max

    def __missing__(self, event_id: str) -> ReservationBatcher:
        batcher = self[event_id] = ReservationBatcher(
            self._db, self._redis_stock, event_id, batch_max=partial(self._sizer.next_max, event_id),
            waiting_max=self._waiting_max,
        )  # fmt: skip
        return batcher


def _seat_ids(selection: Selection, places: Collection[SeatPosition]) -> list[str]:
    return [line.seat_id for line in selection.seats if (line.section_id, line.position) in places]


def _hold_arguments(request: ReservationRequest) -> dict[str, Any]:
    layout = request.layout
    return {
        "reservation_id": request.reservation_id, "holder": request.holder, "jti": request.jti,
        "pass_epoch": request.pass_epoch,
        "stock_hash": request.stock_hash, "body_hash": request.body_hash,
        **request.redis_request, "hold_ttl_ms": layout.variant_for(request.holder).hold_ttl_s * 1000,
        "tickets_max": layout.tickets_per_customer,
        "live_max": layout.active_reservations_per_customer or LIVE_UNLIMITED_MAX,
    }  # fmt: skip


def _hold_insert(request: ReservationRequest, reply: HoldGranted) -> HoldInsert:
    return HoldInsert(
        reservation_id=reply.reservation_id, holder=request.holder, selection=request.selection,
        currency=request.layout.currency, until_ms=reply.until_ms,
        fingerprint=f"{request.stock_hash}.{request.body_hash}", lane=request.lane,
        join_seq=request.join_seq, email=request.email,
        reminders=request.reminders, variant=request.layout.variant_for(request.holder),
        allotments=_allotments(request),
    )  # fmt: skip


def _allotments(request: ReservationRequest) -> tuple[str, ...]:
    """Whose each of its seats is; nothing where all are everybody's."""
    layout = request.layout
    return layout.exclusive.allotments(request.selection.seats) if layout.offers.exclusive else ()


def _replayed(request: ReservationRequest, record: ReservationRow) -> ReservationRow | Problem:
    """The result for a repeated key. A tombstone (no fingerprint) means that the first request was written too late."""
    if not record.fingerprint:
        return HoldExpired("This reservation was not written in time. Try again with another Idempotency-Key.")
    if record.holder != request.holder or record.fingerprint != f"{request.stock_hash}.{request.body_hash}":
        return IdempotencyKeyReused()
    return record


def sold_out(layout: Layout, left: Mapping[str, int]) -> SoldOut:
    """How many of the requested places are left, by section, and how many of a price type, by its `quota_id`; of many
    those with the most.
    """
    left = {s if s[0] == QUOTA else section_of(s): n for s, n in sorted(left.items(), key=lambda each: each[1])}
    most = sorted(left, key=lambda section_id: -left[section_id])[:SECTIONS_NAMED_MAX]
    named = [section_id for section_id in most if left[section_id] > 0] or most[:1] * (len(left) == 1)
    sentences = (_left(layout, section_id, left[section_id]) for section_id in named)
    none = "None of these tickets is left." if left else None  # the ledger refused for another reason
    return SoldOut(" ".join(sentences) or none, available=dict(left))


def _left(layout: Layout, section_id: str, left: int) -> str:
    if section_id[0] == QUOTA:
        name = layout.types.named(section_id[1:])
        return f"Only {left:,} of {name} {'is' if left == 1 else 'are'} left." if left else f"None of {name} is left."
    section = layout.sections[section_id].name
    if left == 0:
        return f"None of these tickets is left in {section}."
    return f"Only {left:,} of these tickets {'is' if left == 1 else 'are'} left in {section}."


def _problem(request: ReservationRequest, refusal: HoldDenied) -> Problem:
    """The problem for a denied request."""
    match refusal.outcome:
        case "seats-taken":
            seats = _seat_ids(request.selection, StockSelection.parse(refusal.detail).seats)
            return SeatsTaken(f"Taken meanwhile: {', '.join(seats)}. Choose other seats.", seats=seats)
        case "single-seat":
            return refused(request.layout, refusal.detail)
        case "no-adjacent-seats":
            return NoAdjacentSeats(
                f"At most {refusal.detail} seats are together. Allow a split, or choose fewer.",
                together=int(refusal.detail),
            )
        case "no-accessible-places":
            return NoAccessiblePlaces.left(*map(int, refusal.detail.split(",")))
        case "sold-out":
            return sold_out(request.layout, StockSelection.parse(refusal.detail).ga)
        case "limit-exceeded":
            allowed = getattr(request.layout, refusal.detail) or LIVE_UNLIMITED_MAX
            return LimitExceeded(f"{refusal.detail} is {allowed}.", limit=refusal.detail, allowed=allowed)
        case "reused":
            return IdempotencyKeyReused()
        case "revoked":
            return BadCredential("This pass has ended. Join the line again.")
        case "clocks-apart":
            return ClocksApart(describe_offset(REDIS, int(refusal.detail)))
        case _:
            return Unavailable("The stock is being rebuilt. Nothing was reserved. Try again shortly.")
