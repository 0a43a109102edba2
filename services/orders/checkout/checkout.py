"""Turns a reservation into an order, exactly once per idempotency key.

In this order: check what needs no reservation; look up the key and meanwhile bind the hold to the order at inventory,
which answers the reservation; price it; write the order in one transaction. The hold of an order that is refused is as
it was before. After a crash anywhere the same key can be used again.

Concurrent orders are written by one statement, each owned by this process from the beginning. A duplicate answers for
itself: key, reference and reservation are unique in the row, and what exists is not written.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar, get_args

import orjson

from services.orders.checkout.requests import (
    NewOrder,
    Payment,
    QuoteRequest,
    fingerprint_of,
    key_in_flight,
    require_names,
)
from services.orders.metrics import CHECKOUT_SECONDS, IDEMPOTENT_REPLAYS, ORDERS
from services.orders.model.order import (
    Attempt,
    Customer,
    JournalEntry,
    LineTicket,
    Order,
    OrderLine,
    customer_key,
    order_reference,
    owner_id,
    provider_key,
    ticket_id,
)
from services.orders.model.update import order_event
from services.orders.pricing.quote import (
    CodeUse,
    Prices,
    Quote,
    Redeemed,
    quote_body,
    require_payable,
)
from services.orders.problems import PriceChanged, ReservationTaken
from services.orders.steps.run import InventoryBatcher
from services.orders.store.store import (
    OrderStore,
    attempts_json,
    extras_json,
    journal_json,
    lines_json,
    write_tombstone,
)
from services.orders.worker.worker import Path, Worker
from shared.concurrency.background import wake
from shared.concurrency.coalescing import GroupCommits, by_halves
from shared.contracts.fields import code_key, tidy
from shared.contracts.inventory import PaymentStep, Reservation, StepDone
from shared.errors.problems import (
    HoldExpired,
    IdempotencyInFlight,
    IdempotencyKeyReused,
    InvalidRequest,
    LimitExceeded,
    PaymentInProgress,
    Problem,
    UnknownReservation,
)
from shared.payment_provider import Provider
from shared.postgres.engine import DB_AWAY, AsyncConnection, AsyncEngine, DBAPIError, retry_deadlocks, statement
from shared.process.load import PurchaseWork
from shared.runtime import tracing
from shared.runtime.clock import Clocks, now_ms
from shared.security.tokens import Keyring
from shared.web.request import key_hash
from shared.words.words import DEFAULT_LANGUAGE

IN_FLIGHT_WAIT_S = 2.0
BOUGHT_BY_ANOTHER = "The reservation was bought by another order."
PAYABLE_STATUSES = ("pending_payment", "paying")
_insert = cache(partial(statement, "services.orders.store", "insert"))  # with a part of a feature, if there is any
BATCH_MAX = 100
WAITING_MAX = 2000
IN_FLIGHT_MAX = 2  # a batch that waits for a row lock does not hold up the next
Answer = TypeVar("Answer")
_pending = ORDERS.labels("pending")
_seconds = {path: CHECKOUT_SECONDS.labels(path) for path in get_args(Path)}


class OrderDraft(NamedTuple):
    """An order to be written, with what only its row has."""

    order: Order
    key_hash: bytes
    fingerprint: bytes
    phone: str | None = None
    use: CodeUse | None = None


def new_order(
    reference: str, held: Reservation, quote: Quote, request: NewOrder, *, language: str, capture: bool
) -> Order:
    """The order as it is written; the database gives it its version. Its attempt is `unknown`, as after a crash during
    the call: whoever takes it over repeats the charge under its key.
    """
    payment, at_ms = request.payment, now_ms()
    attempt = Attempt(
        n=1, provider=payment.provider, method=payment.method, token=payment.token, return_url=payment.return_url,
        amount_minor=quote.total_minor, currency=held.currency, provider_key=provider_key(reference, 1),
        status="unknown", capture=capture, created_at_ms=at_ms, changed_at_ms=at_ms,
    )  # fmt: skip
    journal = (
        JournalEntry(type="reserve", by="fan", status="completed", tries=1, at_ms=at_ms, done_at_ms=at_ms,
                     payload={"reservation_id": held.reservation_id}),
        JournalEntry(type="checkout", by="fan", status="processing", tries=0, at_ms=at_ms),
    )  # fmt: skip
    return Order(
        reference=reference, status="pending", event_id=held.event_id, reservation_id=held.reservation_id,
        owner_id=owner_id(held.event_id, held.holder), lane=held.lane, join_seq=held.join_seq,
        total_minor=quote.total_minor, currency=held.currency, customer_name=tidy(request.customer.name),
        customer_email=request.customer.email, language=language, created_at_ms=at_ms,
        expires_at_ms=held.reserved_until_ms, grace_s=held.grace_s, confirmed_at_ms=None, ended_at_ms=None,
        end_reason=None, cancel_requested=False, extended=False, released=False, charge_ref=None, version=0,
        now_ms=at_ms, traceparent=tracing.traceparent(),
        lines=_with_tickets(reference, quote.lines, request.names),
        extras=quote.extras, attempts=(attempt,) if quote.total_minor else (), journal=journal,
        price_types=quote.types,
    )  # fmt: skip


def _with_tickets(reference: str, lines: Sequence[OrderLine], names: Sequence[str]) -> tuple[OrderLine, ...]:
    """The lines with their tickets, each with the next of the names, if there are any."""
    named = iter(names)
    return tuple(
        replace(
            line,
            line_no=line_no,
            tickets=tuple(
                LineTicket(id=ticket_id(reference, line_no, n), name=next(named, None))
                for n in range(1, line.quantity + 1)
            ),
        )
        for line_no, line in enumerate(lines, start=1)
    )


class OrderWriter(GroupCommits):
    """Writes orders and gives them to the worker of this process. Use inside `async with`."""

    def __init__(self, db: AsyncEngine, worker: Worker, clocks: Clocks, prices: Prices) -> None:
        super().__init__(batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=IN_FLIGHT_MAX)
        self._db, self._worker, self._clocks, self._prices = db, worker, clocks, prices
        self._single = db.execution_options(isolation_level="AUTOCOMMIT")
        # Writes an order, and returns it as it was written. Raises `PromoCodeNotValid`, or `ReservationTaken`: its key
        # created an order before, its reference can never be used, or its reservation has another order.
        self.insert: Callable[[OrderDraft], Awaitable[Order]] = self.grouped("orders-insert", self._insert_batch)

    async def _insert_batch(self, batch: Sequence[OrderDraft]) -> Sequence[Order | BaseException]:
        await self._worker.require_alive()
        try:
            return await retry_deadlocks(lambda: self._insert(batch))
        except DB_AWAY:
            self._worker.doubt()
            raise
        except DBAPIError as failed:
            if len(batch) > 1:
                return await by_halves(self._insert_batch, batch)
            return [failed]

    async def _insert(self, batch: Sequence[OrderDraft]) -> list[Order | BaseException]:
        """Codes are locked, counted and redeemed in one transaction; without codes there is a single statement."""
        first = {draft.order.reference: draft for draft in reversed(batch)}  # of each reference
        uses = [draft.use for draft in batch if draft.use and first[draft.order.reference] is draft]
        if not uses:
            async with self._single.connect() as connection:
                return self._outcomes(batch, await self._write(connection, list(first.values())), {})
        assert self._prices.codes is not None, "the quote refuses every code without them"
        async with self._db.begin() as connection:
            redeemed = await self._prices.codes.redeem(connection, uses)
            granted = [draft for reference, draft in first.items() if reference not in redeemed.refused]
            written = await self._write(connection, granted, redeemed)
        return self._outcomes(batch, written, redeemed.refused)

    async def _write(
        self, connection: AsyncConnection, drafts: Sequence[OrderDraft], redeemed: Redeemed | None = None
    ) -> dict[str, tuple[int, int]]:
        """The version of each order that is new, and when it was created, in ms since the epoch."""
        bound = {"orders": orjson.dumps(list(map(_row, drafts))).decode(), "owner": self._worker.owner}
        part, more = (redeemed.part, redeemed.bound) if redeemed else ("", {})
        rows = await connection.execute(_insert(part), {**bound, **more})
        wake("orders")
        return {row.reference: (row.version, row.created_at_ms) for row in rows}

    def _outcomes(
        self, batch: Sequence[OrderDraft], written: dict[str, tuple[int, int]], refused: Mapping[str, Problem]
    ) -> list[Order | BaseException]:
        outcomes: list[Order | BaseException] = []
        for draft in batch:
            reference = draft.order.reference
            if reference not in written:
                outcomes.append(refused.get(reference) or ReservationTaken())
                continue
            version, created_at_ms = written.pop(reference)  # of two with the same reference the first
            now_ms = min(version, self._clocks.slowest_ms())
            order = replace(draft.order, version=version, created_at_ms=created_at_ms, now_ms=now_ms)
            self._worker.add(order)
            outcomes.append(order)
        return outcomes


def _row(draft: OrderDraft) -> dict[str, Any]:
    order = draft.order
    event = order_event(order, "created", actor=order.holder, status="pending")
    return {
        "reference": order.reference, "event_id": order.event_id, "reservation_id": order.reservation_id,
        "owner_id": order.owner_id, "key_hash": draft.key_hash.hex(), "fingerprint": draft.fingerprint.hex(),
        "lane": order.lane, "join_seq": order.join_seq, "total_minor": order.total_minor, "currency": order.currency,
        "customer_name": order.customer_name, "customer_email": order.customer_email,
        "customer_phone": draft.phone, "language": order.language,
        "expires_at_ms": order.expires_at_ms, "grace_s": order.grace_s, "lines": lines_json(order.lines),
        "extras": extras_json(order.extras), "attempts": attempts_json(order.attempts),
        "journal": journal_json(order.journal), "event": event.model_dump(mode="json"),
        "traceparent": order.traceparent,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class CheckoutResult:
    """The order's reference, and whether it existed before. `order` is the new order as it was written, unless this
    request has processed it since.
    """

    reference: str
    replayed: bool
    order: Order | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """What a request asks for. `customers` are the caller's verified identities, at least one."""

    customers: Sequence[Customer]
    key: str
    request: NewOrder
    fingerprint: bytes
    address: str | None
    language: str

    @property
    def owner_ids(self) -> list[str]:
        """The customers as orders identify them; none of a signed-in user, before a reservation tells the event."""
        return [owner_id(customer.event_id, customer.holder) for customer in self.customers if customer.event_id]


@dataclass(slots=True)
class Checkout:
    """Creates orders. Requests with the same key wait for each other in this process, and by row locks across
    processes. `check_address` refuses an e-mail address, if asked to one whose spelling is doubtful.
    """

    store: OrderStore
    inventory: InventoryBatcher
    writer: OrderWriter
    worker: Worker
    providers: dict[str, Provider]
    capture: bool
    load: PurchaseWork
    prices: Prices
    order_token_keys: Keyring
    customer_keys: Keyring
    check_address: Callable[[str, bool], None]
    _in_flight: dict[tuple[Customer, str], asyncio.Event] = field(default_factory=dict)

    async def order(
        self, customers: Sequence[Customer], key: str, request: NewOrder, *, address: str | None = None,
        language: str = DEFAULT_LANGUAGE,
    ) -> CheckoutResult:  # fmt: skip
        """Creates the order, or finds the one this key created, also while inventory is unavailable."""
        wanted = Purchase(
            customers=customers, key=key, request=request, fingerprint=fingerprint_of(request), address=address,
            language=language,
        )  # fmt: skip
        try:
            check_payment(self.providers, request.payment)
            self.check_address(request.customer.email, request.customer.check_spelling)
        except Problem:
            if (known := await self._find(wanted)) is not None:
                return known
            raise
        flight = customers[0], key
        deadline = asyncio.get_running_loop().time() + IN_FLIGHT_WAIT_S
        while (first := self._in_flight.get(flight)) is not None:
            if (known := await self._find(wanted)) is not None:
                return known
            try:
                async with asyncio.timeout_at(deadline):
                    await first.wait()
            except TimeoutError:
                raise IdempotencyInFlight from None
        self._in_flight[flight] = done_event = asyncio.Event()
        try:
            return await self._create(wanted)
        finally:
            del self._in_flight[flight]
            done_event.set()

    async def quote(
        self, customers: Sequence[Customer], request: QuoteRequest, *, address: str | None = None
    ) -> tuple[Reservation, Quote]:
        """The present price of a reservation; nothing is changed."""
        found = await self.inventory.read(request.reservation_id, _event_id(customers))
        owner, reservation = _owned(customers, found)
        _require_payable(reservation)
        use = CodeUse(reservation.event_id, code_key(request.promo_code)) if request.promo_code is not None else None
        quote = await self.prices.quote(owner, reservation, use, address=address)
        require_payable(quote.total_minor, reservation.currency, self.providers)
        return reservation, quote

    async def _find(self, wanted: Purchase) -> CheckoutResult | None:
        """What the key created, without any change. Raises `IdempotencyKeyReused`."""
        owner_ids = wanted.owner_ids
        if not owner_ids:
            owner, _ = _owned(wanted.customers, await self.inventory.read(wanted.request.reservation_id))
            owner_ids = [owner]
        return await self._replay(wanted, owner_ids)

    async def _replay(self, wanted: Purchase, owner_ids: Sequence[str]) -> CheckoutResult | None:
        """What the key of one of these owners created. Raises `IdempotencyKeyReused` if it came with another body."""
        known = await self.store.find_key((tuple(owner_ids), key_hash(wanted.key))) if owner_ids else None
        if known is None:
            return None
        reference, fingerprint = known
        if fingerprint != wanted.fingerprint:
            raise IdempotencyKeyReused
        IDEMPOTENT_REPLAYS.inc()
        return CheckoutResult(reference, replayed=True)

    async def _create(self, wanted: Purchase) -> CheckoutResult:
        """Binds the hold while the key is looked up. Whatever was bound for a repeat, or for an order that is refused,
        is bound no more.
        """
        step, owner_ids = self._step(wanted), wanted.owner_ids
        found, begun = await asyncio.gather(
            self._replay(wanted, owner_ids), self._begin_payment(step), return_exceptions=True
        )
        try:
            known = _answered(found)
            if known is None and not owner_ids:
                owner, _ = _owned(wanted.customers, _answered(begun).reservation)
                owner_ids = [owner]
                known = await self._replay(wanted, owner_ids)
            if known is None:
                return await self._write_order(await self._priced(wanted, step, _answered(begun)))
        except Problem:
            await self._unbind(step, begun)
            # this very key may have bought the reservation, or spent the last use, since it was looked up
            if (known := await self._replay(wanted, owner_ids)) is not None:
                return known
            raise
        await self._unbind(step, begun)
        return known

    def _step(self, wanted: Purchase) -> PaymentStep:
        request, customers = wanted.request, wanted.customers
        return PaymentStep(
            event_id=_event_id(customers), reservation_id=request.reservation_id,
            order_reference=order_reference(self.order_token_keys, request.reservation_id, wanted.key),
            customer_key=customer_key(self.customer_keys, request.customer.email),
            owner_ids=[owner_id(customer.event_id or "", customer.holder) for customer in customers],
        )  # fmt: skip

    async def _begin_payment(self, step: PaymentStep) -> StepDone:
        """Binds the hold to this order at inventory. A hold bound to an order that was never written is freed by a
        tombstone first.
        """
        done = await self.inventory.begin_payment(step)
        other = done.order_reference
        if done.outcome == "payment-in-progress" and other and await write_tombstone(self.store.db, other):
            await self.inventory.end_payment(step.model_copy(update={"order_reference": other}))
            done = await self.inventory.begin_payment(step)
        return done

    async def _unbind(self, step: PaymentStep, begun: StepDone | BaseException) -> None:
        """The hold is as before this request bound it. One that another request of the order has bound since, or that
        inventory does not answer for, stays so: until the next order of it, or its end.
        """
        if isinstance(begun, StepDone) and begun.binding is not None:
            with suppress(Problem):
                await self.inventory.end_payment(step.model_copy(update={"binding": begun.binding}))

    async def _priced(self, wanted: Purchase, step: PaymentStep, begun: StepDone) -> OrderDraft:
        """The order as it is to be written. Raises whatever refuses it."""
        request = wanted.request
        owner, held = _owned(wanted.customers, begun.reservation)
        _require_bound(begun, held)
        code, customer = request.promo_code, step.customer_key or ""
        use = CodeUse(held.event_id, code_key(code), customer, step.order_reference) if code is not None else None
        quote = await self.prices.quote(owner, held, use, address=wanted.address)
        require_names(quote.names, quote.lines, request.names)
        provider = self.providers[request.payment.provider]
        require_payable(quote.total_minor, held.currency, self.providers, by=provider)
        if (request.expected_total_minor, request.currency) != (quote.total_minor, held.currency):
            raise PriceChanged(**quote_body(held, quote))
        order = new_order(step.order_reference, held, quote, request, language=wanted.language, capture=self.capture)
        return OrderDraft(
            order=order, key_hash=key_hash(wanted.key), fingerprint=wanted.fingerprint, phone=request.customer.phone,
            use=use,
        )  # fmt: skip

    async def _write_order(self, draft: OrderDraft) -> CheckoutResult:
        """Raises `ReservationTaken` or `PromoCodeNotValid` if it was not written, and its key may have been used."""
        started, to_be = time.perf_counter(), draft.order
        in_background = await self.prices.in_background(to_be.event_id, to_be.holder)
        with key_in_flight():
            order = await self.writer.insert(draft)
        _pending.inc()
        with self.load.left():
            path = await self.worker.settle(order.reference, in_background=in_background)
        _seconds[path].observe(time.perf_counter() - started)
        is_unchanged = path in ("background", "overflow")
        return CheckoutResult(draft.order.reference, replayed=False, order=order if is_unchanged else None)


def check_payment(providers: dict[str, Provider], payment: Payment) -> None:
    """Raises `InvalidRequest` for an unknown provider or method."""
    if payment.provider not in providers:
        raise InvalidRequest("payment.provider: there is no provider with this name. See GET /payments/providers.")
    if payment.method not in providers[payment.provider].methods:
        raise InvalidRequest("payment.method: the provider has no such method. See GET /payments/providers.")


def _answered(answer: Answer | BaseException) -> Answer:
    """What was answered, or raises what was raised instead."""
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _event_id(customers: Sequence[Customer]) -> str | None:
    """The customers' event, which is the shard key of what they reserved; None if they have several, or are users."""
    event_ids = {customer.event_id for customer in customers}
    return event_ids.pop() if len(event_ids) == 1 else None


def _owned(customers: Sequence[Customer], reservation: Reservation | None) -> tuple[str, Reservation]:
    """The reservation and the owner id of who made it, one of these customers. An expired pass stays proof for
    `lapsed_pass_s`, as a hold outlasts its session. Raises `UnknownReservation`.
    """
    if reservation is not None:
        owner = owner_id(reservation.event_id, reservation.holder)
        if any(customer.owns(owner) for customer in customers):
            return owner, reservation
    raise UnknownReservation


def _require_payable(reservation: Reservation) -> None:
    """Raises `PaymentInProgress`, `HoldExpired`."""
    if reservation.status == "confirmed":
        raise PaymentInProgress(BOUGHT_BY_ANOTHER)
    if reservation.status not in PAYABLE_STATUSES:
        raise HoldExpired


def _limit_exceeded(done: StepDone) -> LimitExceeded:
    over = done.over
    assert over is not None, "inventory names the limit"
    what = {
        "tickets_per_customer": "Tickets of one customer", "open_orders_per_customer": "Orders in payment at once",
        "tour_tickets_per_customer": "Tickets of one customer for the whole tour",
    }  # fmt: skip
    detail = f"{what[over.limit]}: {over.used} so far, at most {over.allowed} in all."
    return LimitExceeded(detail, **over.model_dump())


def _require_bound(begun: StepDone, reservation: Reservation) -> None:
    """Raises why inventory did not bind the reservation to this order."""
    _require_payable(reservation)
    if begun.outcome == "limit-exceeded":
        raise _limit_exceeded(begun)
    if begun.outcome == "payment-in-progress":
        raise PaymentInProgress("The reservation is being paid by another order.")
    if begun.outcome != "done":
        raise HoldExpired
