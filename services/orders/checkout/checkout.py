"""From a reservation to an order, once, however often it is asked for.

First whatever may have been said before, then everything that can refuse, then inventory gives the hold to this order
by name, then one transaction makes the order. A crash anywhere leaves a key that can simply be used again.
"""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from asyncpg.exceptions import LockNotAvailableError
from sqlalchemy.exc import DBAPIError

from services.orders.api.auth import Customer, owner_id
from services.orders.api.schemas import NewOrder, Payment, QuoteAsked
from services.orders.checkout.background_share import BackgroundShare
from services.orders.checkout.create_order import OrderDraft, OrderWriter, Outcome, Word, write_tombstone
from services.orders.checkout.idempotency import IdempotencyLookup, IdempotencyRecord, Prefetch
from services.orders.checkout.inventory_client import InventoryBatcher
from services.orders.metrics import CHECKOUT_SECONDS, INLINE, ORDERS, REPLAYED
from services.orders.order.card_numbers import refuse_card_numbers
from services.orders.order.references import customer_key, key_hash, order_reference
from services.orders.order.repository import OrderRepository
from services.orders.order.updates import Lease
from services.orders.payments.provider import Provider
from services.orders.pricing.calculator import Quote
from services.orders.pricing.quote import Quoter, promo_code_not_valid, quote_body
from services.orders.problems import PriceChanged, PromoCodeNotValid, ReservationTaken
from services.orders.processing.worker_pool import InlineProcessor
from shared.contracts.inventory import PaymentStep, Reservation, StepDone
from shared.postgres.engine import AsyncEngine
from shared.security.tokens import Keyring
from shared.web.problems import (
    HoldExpired,
    IdempotencyInFlight,
    IdempotencyKeyReused,
    InvalidRequest,
    LimitExceeded,
    PaymentInProgress,
    UnknownReservation,
)

IN_FLIGHT_WAIT_S = 2.0
BOUGHT = "The reservation was bought by another order."
PAYABLE = ("pending_payment", "paying")
Path = Literal["background", "request", "overflow", "job_engine_away"]
_pending = ORDERS.labels("pending")
_seconds = {path: CHECKOUT_SECONDS.labels(path) for path in get_args(Path)}


@dataclass(frozen=True, slots=True)
class CheckoutResult:
    """The order's reference, and whether it was there before; `placed` is what it was made of, if nothing happened to
    it in this request since.
    """

    reference: str
    replayed: bool
    placed: OrderDraft | None = None


@dataclass(slots=True)
class Checkout:
    """Takes orders. Requests with the same key that meet in this process wait for each other; others meet in rows."""

    db: AsyncEngine
    book: OrderRepository
    priors: Prefetch
    stock: InventoryBatcher
    placing: OrderWriter
    providers: dict[str, Provider]
    inline: InlineProcessor
    shares: BackgroundShare
    quoting: Quoter
    keys: Keyring
    customer_keys: Keyring
    _in_flight: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)

    async def order(
        self, buyers: Sequence[Customer], key: str, asked: NewOrder, *, address: str | None = None
    ) -> CheckoutResult:
        """Insert or return. `buyers` are those the caller has proved to be, at least one."""
        told = asked.model_dump_json()
        refuse_card_numbers(asked, told)
        owners = await self._principals(buyers, asked.reservation_id)
        fingerprint = hashlib.sha256(told.encode()).digest()
        flight = owners[0], key
        deadline = asyncio.get_running_loop().time() + IN_FLIGHT_WAIT_S
        question = _question(owners, key)
        while (prior := await self.priors.read(question, asked.reservation_id)).known is None and (
            flight in self._in_flight
        ):
            await self._wait_for_first(flight, deadline)
        if prior.known is not None:
            return _replayed(prior.known, fingerprint)
        self._in_flight[flight] = mine = asyncio.Event()
        try:
            return await self._new(owners, key, asked, fingerprint, prior.reservation, address=address)
        except PromoCodeNotValid:
            # its last use may have gone to this very key, by another process
            if (known := await self._known(owners, key, fingerprint)) is not None:
                return known
            raise
        finally:
            del self._in_flight[flight]
            mine.set()

    async def quote(
        self, buyers: Sequence[Customer], asked: QuoteAsked, *, address: str | None = None
    ) -> tuple[Reservation, Quote]:
        """What the reservation would cost now; nothing is changed."""
        owners = await self._principals(buyers, asked.reservation_id)
        who, reservation = _payable(owners, await self.stock.read(asked.reservation_id))
        return reservation, await self.quoting.quote(who, reservation, asked.promo_code, address=address)

    async def _principals(self, buyers: Sequence[Customer], reservation_id: str) -> list[str]:
        """As orders remember the buyers. At which event a signed-in user buys, only the reservation tells."""
        owners = [owner_id(buyer.event_id, buyer.holder) for buyer in buyers if buyer.event_id is not None]
        users = [buyer.holder for buyer in buyers if buyer.event_id is None]
        reservation = await self.stock.read(reservation_id) if users else None
        if reservation is not None:
            owners += [owner_id(reservation.event_id, holder) for holder in users]
        if not owners:
            raise UnknownReservation
        return owners

    async def _wait_for_first(self, flight: tuple[str, str], deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._in_flight[flight].wait()
        except TimeoutError:
            raise IdempotencyInFlight from None

    async def _known(self, owners: Sequence[str], key: str, fingerprint: bytes) -> CheckoutResult | None:
        known = await self.book.find_key(_question(owners, key))
        return _replayed(known, fingerprint) if known else None

    async def _new(
        self, owners: Sequence[str], key: str, asked: NewOrder, fingerprint: bytes, found: Reservation | None, *,
        address: str | None,
    ) -> CheckoutResult:  # fmt: skip
        check_payment(self.providers, asked.payment)
        who, reservation = _payable(owners, found)
        customer = customer_key(self.customer_keys, asked.customer.email)
        quote = await self.quoting.quote(who, reservation, asked.promo_code, customer, address=address)
        _check_price(asked, reservation, quote)
        reference = order_reference(self.keys, who, key)
        done = await self._begin_payment(reference, reservation, customer)
        if done.word == "changed":
            who, reservation = _payable(owners, await self.stock.read(asked.reservation_id))
            quote = await self.quoting.quote(who, reservation, asked.promo_code, customer, address=address)
            raise PriceChanged("Part of the reservation was given back.", **quote_body(reservation, quote))
        held = _held_for_payment(reservation, done)
        placed = OrderDraft(
            reference=reference, principal=who, scope=_scope(who), key_hash=key_hash(key), fingerprint=fingerprint,
            reservation=held, quote=quote, customer_key=customer, asked=asked,
        )  # fmt: skip
        return await self._place(placed, owners, key)

    async def _begin_payment(self, reference: str, reservation: Reservation, customer: str) -> StepDone:
        """Makes the hold ours by name. Whoever owns it but never came to be is buried first, so it cannot come late."""
        held = reservation.reservation_id
        step = PaymentStep(
            reservation_id=held, order_reference=reference, customer_key=customer, given_back=reservation.given_back
        )  # fmt: skip
        done = await self.stock.begin_payment(step)
        other = done.order_reference
        if done.word == "payment-in-progress" and other and await write_tombstone(self.db, other):
            end = PaymentStep(reservation_id=held, order_reference=other)
            await self.stock.end_payment(end)
            done = await self.stock.begin_payment(step)
        return done

    async def _place(self, placed: OrderDraft, owners: Sequence[str], key: str) -> CheckoutResult:
        held, started = placed.reservation, time.perf_counter()
        in_request = not self.shares.in_background(held.event_id, held.holder)
        word, lease = await self._insert(placed, in_request=in_request)
        if word == "known":
            known = await self._known(owners, key, placed.fingerprint)
            assert known is not None, "the key was there a moment ago"
            return known
        if word == "buried":
            await self._end_payment(placed)
            raise ReservationTaken
        if word != "placed" and word != "unheard":
            if await self._known(owners, key, placed.fingerprint) is None:
                await self._end_payment(placed)
            raise promo_code_not_valid(word)
        _pending.inc()
        if lease is not None:
            INLINE.inc(word == "unheard")
            await self.inline.process(lease)
        _seconds[_path(word, in_request, lease)].observe(time.perf_counter() - started)
        return CheckoutResult(placed.reference, replayed=False, placed=None if lease else placed)

    async def _end_payment(self, placed: OrderDraft) -> None:
        """The hold is as it was before it was to be paid."""
        end = PaymentStep(reservation_id=placed.reservation.reservation_id, order_reference=placed.reference)
        await self.stock.end_payment(end)

    async def _insert(self, placed: OrderDraft, *, in_request: bool) -> Outcome:
        try:
            return await self.placing.insert(placed, in_request=in_request)
        except DBAPIError as failed:
            if waited_for_a_lock(failed):
                raise IdempotencyInFlight from failed
            raise


def waited_for_a_lock(failed: DBAPIError) -> bool:
    """Whether a row was somebody else's for too long: with a key's row, the first request with it is still running."""
    return isinstance(getattr(failed.orig, "__cause__", None), LockNotAvailableError)


def _path(word: Word, in_request: bool, lease: Lease | None) -> Path:
    """Which way an order went, as metrics tell it."""
    if lease is not None:
        return "job_engine_away" if word == "unheard" else "request"
    return "overflow" if in_request or word == "unheard" else "background"


def check_payment(providers: dict[str, Provider], payment: Payment) -> None:
    """Raises `InvalidRequest` for a provider or method nobody offers."""
    provider = providers.get(payment.provider)
    if provider is None:
        raise InvalidRequest("payment.provider: there is no provider of this name.")
    if payment.method not in provider.methods:
        raise InvalidRequest("payment.method: the provider does not offer this method.")


def _scope(who: str) -> str:
    return f"POST /orders {who}"


def _question(owners: Sequence[str], key: str) -> IdempotencyLookup:
    return IdempotencyLookup(tuple(map(_scope, owners)), key_hash(key))


def _replayed(known: IdempotencyRecord, fingerprint: bytes) -> CheckoutResult:
    """Raises `IdempotencyKeyReused` if the key came with another body."""
    if known.fingerprint != fingerprint:
        raise IdempotencyKeyReused
    REPLAYED.inc()
    return CheckoutResult(known.reference, replayed=True)


def _owner(owners: Sequence[str], reservation: Reservation | None) -> str:
    """Who made the reservation; a pass stays proof until `reserved_until` + grace although it expired."""
    if reservation is not None and (who := owner_id(reservation.event_id, reservation.holder)) in owners:
        return who
    raise UnknownReservation


def _payable(owners: Sequence[str], reservation: Reservation | None) -> tuple[str, Reservation]:
    """Who made it, and it. Raises `UnknownReservation`, `PaymentInProgress`, `HoldExpired`."""
    who = _owner(owners, reservation)
    assert reservation is not None
    if reservation.status == "confirmed":
        raise PaymentInProgress(BOUGHT)
    if reservation.status not in PAYABLE:
        raise HoldExpired
    return who, reservation


def _check_price(asked: NewOrder, reservation: Reservation, quote: Quote) -> None:
    """What was shown is what is charged, or nothing is."""
    if (asked.expected_total_minor, asked.currency) != (quote.total_minor, reservation.currency):
        raise PriceChanged(**quote_body(reservation, quote))


def _too_many(done: StepDone) -> LimitExceeded:
    over = done.over
    assert over is not None, "inventory tells which limit"
    what = {
        "tickets_per_customer": "Tickets of one customer", "open_orders_per_customer": "Orders in payment at once",
        "tour_tickets_per_customer": "Tickets of one customer for the whole tour",
    }  # fmt: skip
    said = f"{what[over.limit]}: {over.used} so far, at most {over.allowed} in all."
    return LimitExceeded(said, **over.model_dump())


def _held_for_payment(reservation: Reservation, done: StepDone) -> Reservation:
    """The hold as begun, or why not."""
    if done.word == "done":
        assert done.reserved_until_ms is not None, "inventory tells until when"
        return reservation.model_copy(update={"status": "paying", "reserved_until_ms": done.reserved_until_ms})
    if done.word in ("payment-in-progress", "not-owner"):
        raise PaymentInProgress("The reservation is being paid by another order.")
    if done.status == "confirmed":
        raise PaymentInProgress(BOUGHT)
    if done.word == "limit-exceeded":
        raise _too_many(done)
    if done.word == "unknown":
        raise UnknownReservation
    raise HoldExpired
