"""Reserve: Redis grants or denies the holds of a whole batch in one round trip, PostgreSQL writes them in one
transaction.

If PostgreSQL refuses a hold, it is undone in Redis, which holds over PostgreSQL's state of the places. If the outcome
is unknown because a connection broke, the hold's short first deadline (5 s) makes the expiry worker read PostgreSQL.

A request that arrives while a batch is under way waits for all of it, so batches are small while several events sell.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.catalogue.layout import Layout
from services.inventory.metrics import DRIFT, HOLD_OUTCOMES
from services.inventory.problems import NoAdjacentSeats, SeatsTaken
from services.inventory.redis_stock.client import LIVE_UNLIMITED_MAX, HoldDenied, HoldGranted, RedisStock
from services.inventory.reservations.expiry import resolve_due, sync_redis
from services.inventory.reservations.repository import HoldInsert, ReservationRow, read_reservations, write_holds
from services.inventory.reservations.selection import Selection
from services.inventory.stock.change import seat_columns
from services.inventory.stock.snapshot import MARKS
from shared.concurrency.group_commit import GroupCommit
from shared.postgres.engine import DB_AWAY, DBAPIError, statement
from shared.redis.client import REDIS_AWAY
from shared.runtime.clock_offsets import REDIS, describe_offset
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

CONTENTION_WINDOW_S = 1.0


class BatchSizer:
    """The largest batch an event may write: large while it sells alone, small while others sell, too."""

    def __init__(
        self, *, batch_max: int, batch_max_contended: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._batch_max, self._batch_max_contended, self._clock = batch_max, batch_max_contended, clock
        self._last_sold_s: dict[str, float] = {}
        self._pruned_s = 0.0

    def next_max(self, event_id: str) -> int:
        """The largest batch for this event now."""
        now_s = self._clock()
        self._last_sold_s[event_id] = now_s
        if now_s - self._pruned_s > CONTENTION_WINDOW_S:
            self._last_sold_s = {
                event: at_s for event, at_s in self._last_sold_s.items() if now_s - at_s <= CONTENTION_WINDOW_S
            }
            self._pruned_s = now_s
        return self._batch_max_contended if len(self._last_sold_s) > 1 else self._batch_max


DUE_MAX = 200
_held, _repeated = HOLD_OUTCOMES.labels("held"), HOLD_OUTCOMES.labels("again")
SEAT_STATUSES = statement(__package__, "seat_statuses")
SEATS_REMAINING = text(
    "SELECT section_id, seats_remaining FROM inventory.section "
    "WHERE event_id = :event_id AND section_id = ANY(CAST(:sections AS text[]))"
)


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
    """A reservation made now; it has an earlier request's id if Redis granted that one and its process died."""

    request: ReservationRequest
    reservation_id: str
    until_ms: int


ReserveResult = Reserved | ReservationRow


@dataclass(slots=True)
class _Batch:
    """A batch under way: a result per request, set as it becomes known."""

    requests: list[ReservationRequest]
    answers: list[ReserveResult | BaseException | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answers = [None] * len(self.requests)

    def unanswered(self) -> list[int]:
        return [i for i, answer in enumerate(self.answers) if answer is None]


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
        (_held if isinstance(answer, Reserved) else _repeated).inc()
        return answer

    async def close(self) -> None:
        await self._commit.close()
        await asyncio.gather(*self._confirming)

    async def _run(self, requests: list[ReservationRequest]) -> Sequence[ReserveResult | BaseException]:
        batch = _Batch(requests)
        try:
            granted = await self._hold(batch)
            await self._answer_known(batch, granted)
            await self._write(batch, granted)
        except (Unavailable, *REDIS_AWAY, *DB_AWAY, DBAPIError) as away:
            unknown = Unavailable()
            unknown.__cause__ = away
            return [unknown if answer is None else answer for answer in batch.answers]
        assert all(answer is not None for answer in batch.answers)
        return [answer for answer in batch.answers if answer is not None]

    async def _hold(self, batch: _Batch) -> list[HoldGranted | HoldDenied]:
        """Redis' reply for every request. If due holds are in the way, PostgreSQL resolves them and the request is
        repeated once.
        """
        replies = await self._redis_stock.hold(self._event_id, [_hold_arguments(request) for request in batch.requests])
        refused = {i: reply for i, reply in enumerate(replies) if isinstance(reply, HoldDenied) and reply.due}
        if refused:
            due = sorted({reservation_id for reply in refused.values() for reservation_id in reply.due})[:DUE_MAX]
            now_ms = max(reply.now_ms for reply in refused.values())
            await resolve_due(self._db, self._redis_stock, self._event_id, due, now_ms=now_ms)
            again = await self._redis_stock.hold(self._event_id, [_hold_arguments(batch.requests[i]) for i in refused])
            for i, reply in zip(refused, again, strict=True):
                replies[i] = reply
        return replies

    async def _answer_known(self, batch: _Batch, replies: list[HoldGranted | HoldDenied]) -> None:
        """Answers repeated requests with their reservation, and denied ones with their problem."""
        ids = {
            reply.reservation_id if isinstance(reply, HoldGranted) else request.reservation_id
            for request, reply in zip(batch.requests, replies, strict=True)
            if (isinstance(reply, HoldGranted) and reply.outcome == "again")
            or (isinstance(reply, HoldDenied) and request.has_key)
        }
        known: dict[str, ReservationRow] = {}
        if ids:
            async with self._db.connect() as connection:
                known = await read_reservations(connection, sorted(ids))
        ended: dict[int, ReservationRow] = {}
        for i, (request, reply) in enumerate(zip(batch.requests, replies, strict=True)):
            row = known.get(request.reservation_id if isinstance(reply, HoldDenied) else reply.reservation_id)
            if isinstance(reply, HoldDenied):
                batch.answers[i] = _replayed(request, row) if row and request.has_key else _problem(request, reply)
            elif reply.outcome == "again" and row:
                batch.answers[i] = _replayed(request, row) if row.reservation_id == request.reservation_id else row
                if not row.is_live:
                    ended[i] = row
        if ended:
            await self._retry_ended(batch, replies, ended)

    async def _retry_ended(
        self, batch: _Batch, replies: list[HoldGranted | HoldDenied], ended: dict[int, ReservationRow]
    ) -> None:
        """Redis has holds that have ended in PostgreSQL: releases them there. Such a hold answers only the request that
        made it; other requests are repeated once.
        """
        await sync_redis(self._redis_stock, self._event_id, list(ended.values()))
        anew = [i for i, row in ended.items() if row.reservation_id != batch.requests[i].reservation_id]
        again = await self._redis_stock.hold(self._event_id, [_hold_arguments(batch.requests[i]) for i in anew])
        for i, reply in zip(anew, again, strict=True):
            replies[i] = reply
            batch.answers[i] = _problem(batch.requests[i], reply) if isinstance(reply, HoldDenied) else None

    async def _write(self, batch: _Batch, replies: list[HoldGranted | HoldDenied]) -> None:
        """Writes the granted holds, each id once; repeats of an unwritten hold get the same result."""
        by_id: dict[str, list[int]] = {}
        epochs: dict[int, dict[str, HoldInsert]] = {}
        for i in batch.unanswered():
            reply, request = replies[i], batch.requests[i]
            assert isinstance(reply, HoldGranted)
            if not request.selection.quantity:
                request.selection = request.layout.from_selection(reply.selection)
            by_id.setdefault(reply.reservation_id, []).append(i)
            epochs.setdefault(reply.epoch, {}).setdefault(reply.reservation_id, _hold_insert(request, reply))
        for epoch, holds in epochs.items():
            outcomes = await write_holds(self._db, self._event_id, epoch, list(holds.values()))
            written: list[HoldInsert] = []
            for hold, outcome in zip(holds.values(), outcomes, strict=True):
                if outcome == "written":
                    written.append(hold)
                    request = batch.requests[by_id[hold.reservation_id][0]]
                    answer: ReserveResult | BaseException = Reserved(request, hold.reservation_id, hold.until_ms)
                else:
                    answer = await self._rejected_by_db(batch.requests[by_id[hold.reservation_id][0]], hold, outcome)
                for i in by_id[hold.reservation_id]:
                    batch.answers[i] = answer
            follow = asyncio.create_task(self._confirm_written(batch.requests[0].layout, written))
            self._confirming.add(follow)
            follow.add_done_callback(self._confirming.discard)

    async def _confirm_written(self, layout: Layout, written: Sequence[HoldInsert]) -> None:
        """Gives the holds their own deadlines in Redis, in the background. If that fails, the short deadline makes the
        expiry worker do it.
        """
        try:
            grace_ms = layout.grace_s * 1000
            await self._redis_stock.confirm_written(
                self._event_id, {t.reservation_id: t.until_ms + grace_ms for t in written}
            )
        except REDIS_AWAY:
            DRIFT.labels("sync").inc()

    async def _rejected_by_db(
        self, request: ReservationRequest, hold: HoldInsert, outcome: object
    ) -> ReserveResult | BaseException:
        """PostgreSQL refused a hold: Redis holds over PostgreSQL's state of its places."""
        if outcome == "stale":
            return Unavailable("The stock is being rebuilt. Nothing was reserved. Try again shortly.")
        async with self._db.connect() as connection:
            row = (await read_reservations(connection, [hold.reservation_id])).get(hold.reservation_id)
            if row is not None and row.is_live:
                return _replayed(request, row)
            await self._redis_stock.release(self._event_id, [hold.reservation_id])
            if row is not None:
                return _replayed(request, row)
            if not isinstance(outcome, str):
                failed = InternalError("The reservation could not be written. Try again.")
                failed.__cause__ = outcome if isinstance(outcome, BaseException) else None
                return failed
            DRIFT.labels("hold-refused").inc()
            seats = seat_columns((section_id, position) for section_id, position, *_ in hold.selection.seats)
            rows = list(await connection.execute(SEAT_STATUSES, {"event_id": self._event_id, **seats}))
            sections = [ticket[0] for ticket in hold.selection.ga]
            left = list(await connection.execute(SEATS_REMAINING, {"event_id": self._event_id, "sections": sections}))
        unavailable = [row for row in rows if row.status != "available"]
        places = [part for row in unavailable for part in (row.section_id, row.position, "*", MARKS[row.status])]
        await self._redis_stock.set_positions(self._event_id, places)
        await self._redis_stock.lower_available(self._event_id, {row.section_id: row.seats_remaining for row in left})
        taken = {(row.section_id, row.position) for row in unavailable}
        if taken:
            return SeatsTaken(seats=[seat_id for s, p, seat_id, _ in hold.selection.seats if (s, p) in taken])
        return SoldOut(available={row.section_id: row.seats_remaining for row in left})


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
    )  # fmt: skip


def _replayed(request: ReservationRequest, record: ReservationRow) -> ReservationRow | Problem:
    """The result for a repeated key. A tombstone (no fingerprint) means that the first request was written too late."""
    if not record.fingerprint:
        return HoldExpired("This reservation was not written in time. Try again with another Idempotency-Key.")
    if record.holder != request.holder or record.fingerprint != f"{request.stock_hash}.{request.body_hash}":
        return IdempotencyKeyReused()
    return record


def _problem(request: ReservationRequest, refusal: HoldDenied) -> Problem:
    """The problem for a denied request."""
    match refusal.outcome:
        case "seats-taken":
            taken = {tuple(part.split(":")) for part in refusal.detail.split(";")}
            seats = [seat_id for s, p, seat_id, _ in request.selection.seats if (s, str(p)) in taken]
            return SeatsTaken(f"Taken meanwhile: {', '.join(seats)}. Choose other seats.", seats=seats)
        case "no-adjacent-seats":
            return NoAdjacentSeats(
                f"At most {refusal.detail} seats are together. Allow a split, or choose fewer.",
                together=int(refusal.detail),
            )
        case "sold-out":
            pairs = [part.split("*") for part in refusal.detail.split(";")]
            return SoldOut(available={section_id: int(n) for section_id, n in pairs})
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
