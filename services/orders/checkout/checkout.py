"""Turns a reservation into an order, exactly once per idempotency key.

In this order: look up the key, check everything that can refuse, bind the hold to this order at inventory, write the
order in one transaction. After a crash anywhere the same key can be used again.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import get_args

from services.orders.checkout.background_share import BackgroundShare
from services.orders.checkout.create_order import OrderDraft, OrderWriter
from services.orders.checkout.fingerprint import fingerprint_of, key_in_flight
from services.orders.checkout.requests import NewOrder, Payment, QuoteRequest
from services.orders.metrics import CHECKOUT_SECONDS, IDEMPOTENT_REPLAYS, ORDERS
from services.orders.model.order import Order
from services.orders.model.references import customer_key, order_reference
from services.orders.pricing.calculator import Quote
from services.orders.pricing.chargeable import require_payable_by
from services.orders.pricing.quote import Quoter, promo_code_not_valid, quote_body
from services.orders.problems import PriceChanged, PromoCodeNotValid, ReservationTaken
from services.orders.providers.provider import Provider
from services.orders.steps.inventory_client import InventoryBatcher
from services.orders.store.customers import Customer, owner_id
from services.orders.store.payment_status import write_tombstone
from services.orders.store.store import OrderKey, OrderStore
from services.orders.worker.worker import Path, Worker
from shared.contracts.inventory import PaymentStep, Reservation, StepDone
from shared.errors.problems import (
    HoldExpired,
    IdempotencyInFlight,
    IdempotencyKeyReused,
    InvalidRequest,
    LimitExceeded,
    PaymentInProgress,
    UnknownReservation,
)
from shared.security.tokens import Keyring
from shared.web.parameters import key_hash
from shared.words.words import DEFAULT_LANGUAGE

IN_FLIGHT_WAIT_S = 2.0
BOUGHT_BY_ANOTHER = "The reservation was bought by another order."
PAYABLE_STATUSES = ("pending_payment", "paying")
_pending = ORDERS.labels("pending")
_seconds = {path: CHECKOUT_SECONDS.labels(path) for path in get_args(Path)}


@dataclass(frozen=True, slots=True)
class CheckoutResult:
    """The order's reference, and whether it existed before. `order` is the new order as it was written, unless this
    request has processed it since.
    """

    reference: str
    replayed: bool
    order: Order | None = None


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
    background_share: BackgroundShare
    quoter: Quoter
    order_token_keys: Keyring
    customer_keys: Keyring
    check_address: Callable[[str, bool], None]
    _in_flight: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)

    async def order(
        self, customers: Sequence[Customer], key: str, request: NewOrder, *, address: str | None = None,
        language: str = DEFAULT_LANGUAGE,
    ) -> CheckoutResult:  # fmt: skip
        """Creates the order, or finds the one this key created, also while inventory is unavailable. `customers` are
        the caller's verified identities, at least one.
        """
        fingerprint = fingerprint_of(request)
        owner_ids = await self._owner_ids(customers, request.reservation_id)
        flight = owner_ids[0], key
        deadline = asyncio.get_running_loop().time() + IN_FLIGHT_WAIT_S
        while True:
            first = self._in_flight.get(flight)
            known, reservation = await asyncio.gather(
                self._replay(owner_ids, key, fingerprint),
                self.inventory.read(request.reservation_id, _event_id(owner_ids)), return_exceptions=True,
            )  # fmt: skip
            if isinstance(known, BaseException):
                raise known
            if known is not None:
                return known
            first = first or self._in_flight.get(flight)  # one that has ended since may have written after the look
            if first is None:
                break
            await _wait_for_first(first, deadline)
        if isinstance(reservation, BaseException):
            raise reservation
        self._in_flight[flight] = done_event = asyncio.Event()
        try:
            return await self._create(
                owner_ids, key, request, fingerprint, reservation, address=address, language=language
            )
        except (HoldExpired, PaymentInProgress, PromoCodeNotValid):
            # this very key may have bought the reservation, or spent the last use, since it was looked up
            if (known := await self._replay(owner_ids, key, fingerprint)) is not None:
                return known
            raise
        finally:
            del self._in_flight[flight]
            done_event.set()

    async def quote(
        self, customers: Sequence[Customer], request: QuoteRequest, *, address: str | None = None
    ) -> tuple[Reservation, Quote]:
        """The present price of a reservation; nothing is changed."""
        owner_ids = await self._owner_ids(customers, request.reservation_id)
        found = await self.inventory.read(request.reservation_id, _event_id(owner_ids))
        owner, reservation = _payable(owner_ids, found)
        return reservation, await self.quoter.quote(owner, reservation, request.promo_code, address=address)

    async def _owner_ids(self, customers: Sequence[Customer], reservation_id: str) -> list[str]:
        """The customers as orders identify them. The event of a signed-in user is that of the reservation."""
        signed_in = any(customer.event_id is None for customer in customers)
        reservation = await self.inventory.read(reservation_id) if signed_in else None
        of_reservation = reservation.event_id if reservation else None
        owners = ((customer.event_id or of_reservation, customer.holder) for customer in customers)
        owner_ids = [owner_id(event_id, holder) for event_id, holder in owners if event_id]
        if not owner_ids:
            raise UnknownReservation
        return owner_ids

    async def _replay(self, owner_ids: Sequence[str], key: str, fingerprint: bytes) -> CheckoutResult | None:
        """What this key created. Raises `IdempotencyKeyReused` if it came with another body."""
        known = await self.store.find_key(OrderKey(tuple(owner_ids), key_hash(key)))
        if known is None:
            return None
        if known.fingerprint != fingerprint:
            raise IdempotencyKeyReused
        IDEMPOTENT_REPLAYS.inc()
        return CheckoutResult(known.reference, replayed=True)

    async def _create(
        self, owner_ids: Sequence[str], key: str, request: NewOrder, fingerprint: bytes, found: Reservation | None, *,
        address: str | None, language: str,
    ) -> CheckoutResult:  # fmt: skip
        check_payment(self.providers, request.payment)
        self.check_address(request.customer.email, request.customer.check_spelling)
        owner, reservation = _payable(owner_ids, found)
        customer = customer_key(self.customer_keys, request.customer.email)
        quote = await self.quoter.quote(owner, reservation, request.promo_code, customer, address=address)
        require_payable_by(self.providers[request.payment.provider], quote.total_minor, reservation.currency)
        if (request.expected_total_minor, request.currency) != (quote.total_minor, reservation.currency):
            raise PriceChanged(**quote_body(reservation, quote))
        reference = order_reference(self.order_token_keys, owner, key)
        done = await self._begin_payment(reference, reservation, customer)
        if done.outcome == "changed":
            owner, reservation = _payable(owner_ids, done.reservation)
            quote = await self.quoter.quote(owner, reservation, request.promo_code, customer, address=address)
            raise PriceChanged("Part of the reservation was released.", **quote_body(reservation, quote))
        held = _held_for_payment(reservation, done)
        draft = OrderDraft(
            reference=reference, owner_id=owner, key_hash=key_hash(key), fingerprint=fingerprint, reservation=held,
            quote=quote, customer_key=customer, request=request, language=language, capture=self.capture,
        )  # fmt: skip
        return await self._write_order(draft, owner_ids, key)

    async def _begin_payment(self, reference: str, reservation: Reservation, customer: str) -> StepDone:
        """Binds the hold to this order at inventory. A hold bound to an order that was never written is freed by a
        tombstone first.
        """
        held = reservation.reservation_id
        step = PaymentStep(
            event_id=reservation.event_id, reservation_id=held, order_reference=reference, customer_key=customer,
            released_tickets=reservation.released_tickets,
        )  # fmt: skip
        done = await self.inventory.begin_payment(step)
        other = done.order_reference
        if done.outcome == "payment-in-progress" and other and await write_tombstone(self.store.db, other):
            end = PaymentStep(event_id=reservation.event_id, reservation_id=held, order_reference=other)
            await self.inventory.end_payment(end)
            done = await self.inventory.begin_payment(step)
        return done

    async def _write_order(self, draft: OrderDraft, owner_ids: Sequence[str], key: str) -> CheckoutResult:
        held, started = draft.reservation, time.perf_counter()
        with key_in_flight():
            order, rejected = await self.writer.insert(draft)
        if order is None:
            if (known := await self._replay(owner_ids, key, draft.fingerprint)) is not None:
                return known
            end = PaymentStep(
                event_id=held.event_id, reservation_id=held.reservation_id, order_reference=draft.reference
            )
            await self.inventory.end_payment(end)  # the hold is as before
            raise promo_code_not_valid(rejected) if rejected else ReservationTaken
        _pending.inc()
        in_background = self.background_share.in_background(order.event_id, order.holder)
        path = await self.worker.settle_or_leave(order.reference, in_background=in_background)
        _seconds[path].observe(time.perf_counter() - started)
        is_unchanged = path in ("background", "overflow")
        return CheckoutResult(draft.reference, replayed=False, order=order if is_unchanged else None)


async def _wait_for_first(done_event: asyncio.Event, deadline: float) -> None:
    try:
        async with asyncio.timeout_at(deadline):
            await done_event.wait()
    except TimeoutError:
        raise IdempotencyInFlight from None


def check_payment(providers: dict[str, Provider], payment: Payment) -> None:
    """Raises `InvalidRequest` for an unknown provider or method."""
    if payment.provider not in providers:
        raise InvalidRequest("payment.provider: there is no provider with this name. See GET /payments/providers.")
    if payment.method not in providers[payment.provider].methods:
        raise InvalidRequest("payment.method: the provider has no such method. See GET /payments/providers.")


def _event_id(owner_ids: Sequence[str]) -> str | None:
    """The owners' event, which is the shard key of what they reserved; None if they have several."""
    event_ids = {owner.partition(":")[0] for owner in owner_ids}
    return event_ids.pop() if len(event_ids) == 1 else None


def _payable(owner_ids: Sequence[str], reservation: Reservation | None) -> tuple[str, Reservation]:
    """The reservation and its owner, who made it. An expired pass stays proof for `lapsed_pass_s`, as a hold outlasts
    its session. Raises `UnknownReservation`, `PaymentInProgress`, `HoldExpired`.
    """
    if reservation is None or (owner := owner_id(reservation.event_id, reservation.holder)) not in owner_ids:
        raise UnknownReservation
    if reservation.status == "confirmed":
        raise PaymentInProgress(BOUGHT_BY_ANOTHER)
    if reservation.status not in PAYABLE_STATUSES:
        raise HoldExpired
    return owner, reservation


def _limit_exceeded(done: StepDone) -> LimitExceeded:
    over = done.over
    assert over is not None, "inventory names the limit"
    what = {
        "tickets_per_customer": "Tickets of one customer", "open_orders_per_customer": "Orders in payment at once",
        "tour_tickets_per_customer": "Tickets of one customer for the whole tour",
    }  # fmt: skip
    detail = f"{what[over.limit]}: {over.used} so far, at most {over.allowed} in all."
    return LimitExceeded(detail, **over.model_dump())


def _held_for_payment(reservation: Reservation, done: StepDone) -> Reservation:
    """The hold once bound to this order. Raises the reason if inventory refused."""
    if done.outcome == "done":
        assert done.reserved_until_ms is not None, "inventory sets the deadline"
        return reservation.model_copy(update={"status": "paying", "reserved_until_ms": done.reserved_until_ms})
    if done.outcome in ("payment-in-progress", "not-owner"):
        raise PaymentInProgress("The reservation is being paid by another order.")
    if done.status == "confirmed":
        raise PaymentInProgress(BOUGHT_BY_ANOTHER)
    if done.outcome == "limit-exceeded":
        raise _limit_exceeded(done)
    if done.outcome == "unknown":
        raise UnknownReservation
    raise HoldExpired
