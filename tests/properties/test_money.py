"""Model test of orders and payments: after any order of requests, crashes and failures a key has one order, an order
one charge, and in the end every cent pays for a sale or is refunded (invariants 6, 7 and 8).
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar, get_args

import httpx
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from onsale.sandbox.charge import BEHAVIOURS, Charge, RequestRefused
from onsale.sandbox.settings import DisputeRequest, RefundRequest
from services.orders.model.order import ORDER_TRANSITIONS, Order
from services.orders.model.rules import Step, allowed_decisions
from shared.contracts.inventory import Reservation
from tests.orders.manual_orders import PAY_TTL_S, TAKEOVER_S, ManualShop, no_fault, open_manual_shop
from tests.orders.shop import pass_of, reference_of, summed
from tests.properties.examples import bounded, run_machine
from tests.support.running.suite import bearer

T = TypeVar("T")
ORDERS_MAX, PAUSED_MAX = 6, 4
ANY = st.integers(0, 999)
METHOD = st.sampled_from(list(BEHAVIOURS))
FAILPOINTS = ["before the provider", "after the provider", "after inventory", "after the refund"]
FAILPOINTS += [f"{when} {step}" for step in get_args(Step) if step != "wait" for when in ("before", "after")]
STOP = st.tuples(st.sampled_from(FAILPOINTS), st.sampled_from(["dies", "sleeps"]))
LATER_S = st.sampled_from([1, 5, TAKEOVER_S + 1, 61, PAY_TTL_S + 1, 3601])
PROVIDER_FAULTS = st.lists(st.sampled_from(["unreachable", "error", "busy", "answer lost"]), min_size=1, max_size=4)
INVENTORY_FAULTS = st.lists(st.sampled_from(["unreachable", "answer lost"]), min_size=1, max_size=3)
DIES_WHEN = st.sampled_from(["no", "no", "no", "before the transaction", "after the transaction"])
TRANSIENT = ("being refunded", "keeps no money")  # violated for a moment after a payment; not in the end
FINAL = {"confirmed", "cancelled", "expired", "refunded"}
QUIET_PERIODS_S = (0, 70, 20, PAY_TTL_S, 20, 20, 1000, 70, 20, 3700, 20, 20)


class ProcessDied(Exception):
    """The process died."""


class MoneyMachine(RuleBasedStateMachine):
    """One orders service whose work runs only as a rule; workers and requests die or pause in the middle of it."""

    redis_url: str
    postgres_url: str

    @initialize(methods=st.lists(METHOD, min_size=2, max_size=3), grace_s=st.sampled_from([0, 300]))
    def begin(self, methods: list[str], grace_s: int) -> None:
        """With two or three orders."""
        self.loop, self.stack = asyncio.Runner(), AsyncExitStack()
        self.manual: ManualShop = self.loop.run(
            self.stack.enter_async_context(
                open_manual_shop(self.postgres_url, self.redis_url, inline_timeout_s=0.05, begin_within_s=0.01)
            )
        )
        self.run(self.manual.compare())
        self.manual.inventory.sales["grace_s"] = grace_s
        self.keys, self.bodies = list[str](), list[dict[str, Any]]()
        self.accepted, self.cancelled, self.statuses = set[str](), set[str](), dict[str, str]()
        self.taken, self.delivered, self.invariants_held = set[str](), list[bytes](), False
        for method in methods:
            self.order(method, "no", False)

    # -- fans ----------------------------------------------------------------------------------------------------------

    @rule(method=METHOD, dies=DIES_WHEN, in_request=st.booleans())
    def order(self, method: str, dies: str, in_request: bool) -> None:
        """A fan orders a new hold. The process may die before or after the transaction, and as no worker is free the
        request may process its order.
        """
        if len(self.keys) >= ORDERS_MAX:
            return
        self.keys.append(f"key-{len(self.keys)}")
        seat = self.manual.inventory.free_seat()
        reservation_id = self.run(self.manual.inventory.hold(lines=[seat]))
        self.bodies.append(self.manual.body(reservation_id, method=method))
        self.run(self._order(len(self.keys) - 1, dies=dies, in_request=in_request))

    @rule(which=ANY, dies=DIES_WHEN, in_request=st.booleans())
    def order_again(self, which: int, dies: str, in_request: bool) -> None:
        """A repeat with the same key and body."""
        if self.keys:
            self.run(self._order(which % len(self.keys), dies=dies, in_request=in_request))

    @rule(which=ANY)
    def order_under_another_key(self, which: int) -> None:
        """The same reservation has at most one order."""
        if not self.keys or len(self.keys) >= ORDERS_MAX:
            return
        body = self.bodies[which % len(self.bodies)]
        existing = {
            reference
            for n, other in enumerate(self.bodies)
            if other["reservation_id"] == body["reservation_id"] and (reference := self._reference(n)) in self.statuses
        }
        self.keys.append(f"other-{uuid.uuid4().hex}")
        self.bodies.append(body)
        self.run(self._order(len(self.keys) - 1, dies="no", in_request=False))
        assert not (existing and self._reference(-1) in self.accepted), "two orders, one reservation"

    async def _order(self, number: int, *, dies: str, in_request: bool) -> None:
        key, checkout, worker = self.keys[number], self.manual.state.checkout, self.manual.state.worker
        insert, reference = checkout.writer.insert, self._reference(number)

        async def insert_and_die(draft: Any) -> Any:
            if dies == "after the transaction":
                await insert(draft)
            raise ProcessDied

        if dies != "no":
            checkout.writer.insert = insert_and_die
        worker._free_slots += in_request
        try:
            answer = await self.manual.post(self.bodies[number], key=key)
        finally:
            checkout.writer.insert = insert
            worker._free_slots -= in_request
        if dies != "no" and answer.status_code == 500:
            await self.manual.lose(reference)
        if answer.status_code == 202:
            self.accepted.add(answer.json()["reference"])
            assert answer.json()["reference"] == reference
        else:
            assert answer.status_code in ((409, 410, 503) if dies == "no" else (409, 410, 500, 503)), answer.text

    @rule(which=ANY, method=METHOD, key=st.sampled_from(["first", "second"]))
    def pay_again(self, which: int, method: str, key: str) -> None:
        body = {"payment": {"provider": "sandbox", "method": method}}
        self._post(which, "payments", body=body, headers={"idempotency-key": key}, allowed=(202, 409, 410, 422))

    @rule(which=ANY)
    def cancel(self, which: int) -> None:
        self._post(which, "cancel", allowed=(200, 202, 409))

    @rule(which=ANY, choice=st.sampled_from(["pay", "decline", "cancel"]))
    def choose_on_the_payment_page(self, which: int, choice: Any) -> None:
        charges = list(self.manual.charge_store._charges)
        if charges:
            self.run(
                self._at_provider(lambda: self.manual.charge_service.choose(charges[which % len(charges)], choice))
            )

    @rule(which=ANY)
    def refund(self, which: int) -> None:
        """By an operator."""
        if order := self._pick(which):
            answer = self.run(self.manual.admin_post(f"{order}/refund", reason="rain"))
            assert answer.status_code in (202, 409), answer.text

    @rule(which=ANY, part=st.sampled_from([0.3, 1.0]))
    def a_person_refunds_in_the_providers_dashboard(self, which: int, part: float) -> None:
        """All that is left, or some of it."""
        if charge := self._pick_charge(which):
            withdrawn_minor = charge.dispute["withdrawn_minor"] if charge.dispute else 0
            left_minor = charge.captured_minor - charge.refunded_minor - withdrawn_minor
            if (amount_minor := int(left_minor * part)) > 0:  # a dispute may withdraw more than is left
                body, key = RefundRequest(amount_minor=amount_minor), uuid.uuid4().hex
                self.run(self._refund_outside(charge.id, body, key))

    async def _refund_outside(self, charge_id: str, body: RefundRequest, key: str) -> None:
        """Methods whose first refund fails, fail here too."""
        with suppress(RequestRefused):
            self.manual.charge_service.refund(charge_id, body, key=key)

    @rule(which=ANY, status=st.sampled_from(["open", "won", "lost"]), inquiry=st.booleans())
    def a_bank_disputes(self, which: int, status: Any, inquiry: bool) -> None:
        if charge := self._pick_charge(which):
            body = DisputeRequest(status=status, inquiry=inquiry and status == "open")
            self.run(self._dispute(charge.id, body))

    async def _dispute(self, charge_id: str, body: DisputeRequest) -> None:
        """An unpaid charge is not disputed, and no dispute ends twice."""
        with suppress(RequestRefused):
            self.manual.charge_service.dispute(charge_id, body)

    def _pick_charge(self, which: int) -> Charge | None:
        charges = list(self.manual.charge_store._charges.values())
        return charges[which % len(charges)] if charges else None

    def _pick(self, which: int) -> str | None:
        return list(self.statuses)[which % len(self.statuses)] if self.statuses else None

    def _post(
        self, which: int, path: str, *, allowed: tuple[int, ...], body: Any = None, headers: Any = None
    ) -> httpx.Response:
        order = self._pick(which) or "AAAAAAAAAAAA"
        request = self.manual.http.post(f"/orders/{order}/{path}", json=body, headers=_pass() | (headers or {}))
        answer = self.run(request)
        assert answer.status_code in (*allowed, *(() if order in self.statuses else (404,))), answer.text
        return answer

    # -- provider and inventory ----------------------------------------------------------------------------------------

    @rule()
    def an_asynchronous_payment_completes(self) -> None:
        self.run(self._at_provider(self.manual.finish_delayed_charges))

    @rule(which=ANY, times=st.integers(1, 2), lost=st.booleans())
    def a_webhook_arrives(self, which: int, times: int, lost: bool) -> None:
        """Any pending webhook, so that they arrive in any order, repeatedly, or never."""
        webhooks = self.manual.outgoing_webhooks.webhooks
        if webhooks:
            webhook = webhooks.pop(which % len(webhooks))
            self.delivered.append(webhook)
            for _ in range(0 if lost else times):
                self.run(self.manual.deliver(webhook))

    @rule(faults=PROVIDER_FAULTS)
    def the_provider_fails(self, faults: list[str]) -> None:
        self.manual.connection.fault = lambda call, about: faults.pop() if faults else None

    @rule(faults=INVENTORY_FAULTS)
    def inventory_fails(self, faults: list[str]) -> None:
        self.manual.inventory_connection.fault = lambda verb, about: faults.pop() if faults else None

    @rule()
    def inventory_reads_the_payments(self) -> None:
        self.run(self.manual.expire_overdue_holds())

    @rule(which=ANY)
    def an_ended_hold_is_taken(self, which: int) -> None:
        """Somebody else buys the released seats of an order."""
        ended = [held.reservation_id for held in self.run(self._holds()) if held.status in ("cancelled", "expired")]
        if left := [reservation_id for reservation_id in ended if reservation_id not in self.taken]:
            reservation_id = left[which % len(left)]
            self.taken.add(reservation_id)
            self.run(self.manual.inventory.sell_to_another(reservation_id))

    async def _holds(self) -> list[Reservation]:
        """Each hold that fans ordered."""
        reservation_ids = {body["reservation_id"] for body in self.bodies}
        return [await self.manual.inventory.read(reservation_id) for reservation_id in sorted(reservation_ids)]

    # -- workers and time ----------------------------------------------------------------------------------------------

    @rule()
    def work(self) -> None:
        self.run(self.manual.work())

    @rule(stop=STOP)
    def a_worker_stops(self, stop: tuple[str, str]) -> None:
        """The next worker that reaches this failpoint dies or pauses there."""
        if stop[1] == "dies" or len(self.manual.failpoint.asleep) < PAUSED_MAX:
            self.manual.failpoint.next = stop
        self.run(self.manual.work())

    @rule()
    def paused_workers_resume(self) -> None:
        self.run(self.manual.failpoint.wake())

    @rule(which=ANY)
    def another_process_takes_over(self, which: int) -> None:
        """The process that has an order is silent for too long, whether its worker sleeps or has not begun."""
        if order := self._pick(which):
            self.run(self.manual.lose(order))
            self.run(self.manual.work())

    @rule()
    def charges_are_compared(self) -> None:
        """With those of the provider."""
        self.run(self.manual.compare())

    @rule(seconds=LATER_S)
    def time_passes(self, seconds: float) -> None:
        self.run(self.manual.travel(seconds))

    # -- invariants ----------------------------------------------------------------------------------------------------

    def run(self, work: Awaitable[T]) -> T:
        self.invariants_held = False

        async def go() -> T:
            return await work

        return self.loop.run(go())

    async def _at_provider(self, act: Callable[[], Any]) -> None:
        """The provider sets timers, which need a running loop."""
        act()

    @invariant()
    def every_transition_was_allowed_and_nothing_was_done_twice(self) -> None:
        self.run(self.manual.failpoint.until_still(self.manual.running))
        orders = self.run(self._orders())
        assert self.accepted <= set(orders), "an accepted order is gone"
        for reference, order in orders.items():
            before = self.statuses.get(reference, "pending")
            assert order.status in _reachable(before), f"{before} became {order.status}"
            self.statuses[reference] = order.status
            if order.status == "cancelled" and order.cancel_requested:
                self.cancelled.add(reference)
            self._stock_agrees(order)
        violated = self.run(self.manual.violated_invariants())
        assert not [name for name in violated if not name.endswith(TRANSIENT)], violated
        self.invariants_held = True

    async def _orders(self) -> dict[str, Order]:
        found = {reference: await self.manual.state.store.read(reference) for reference in self._references()}
        return {reference: order for reference, order in found.items() if order is not None}

    def _references(self) -> set[str]:
        return {self._reference(n) for n in range(len(self.keys))}

    def _reference(self, number: int) -> str:
        return reference_of(self.manual, self.bodies[number]["reservation_id"], self.keys[number])

    def _stock_agrees(self, order: Order) -> None:
        """Inventory sells the stock before the order is confirmed, and releases it only after the order has ended."""
        held = self.run(self.manual.inventory.read(order.reservation_id))
        is_owner = held.order_reference == order.reference
        assert order.status != "confirmed" or (is_owner and held.status == "confirmed"), (order, held)
        waits = order.status == "pending" or (order.status == "review" and not order.was_sold)
        assert not waits or (is_owner and held.status in ("paying", "confirmed")), held

    def teardown(self) -> None:
        try:
            if self.invariants_held:
                self._check_the_end()
        finally:
            self.loop.run(self.stack.aclose())
            self.loop.close()

    def _check_the_end(self) -> None:
        """All parts work again and hours pass; then every webhook of the day arrives again."""
        self.manual.connection.fault = self.manual.inventory_connection.fault = no_fault
        self.manual.failpoint.next = None
        self.paused_workers_resume()
        for seconds in QUIET_PERIODS_S:
            self.run(self._pass_quietly(seconds))
        self.run(self._resolve_reviews())
        self.run(self._pass_quietly(70))
        ended, books = self.run(self._orders()), self.run(self.manual.provider_entries())
        self._assert_right(ended, books)
        for webhook in reversed(self.delivered):
            self.run(self.manual.deliver(webhook))
        for seconds in (1, 70):
            self.run(self._pass_quietly(seconds))
        again = self.run(self._orders())
        assert {r: o.status for r, o in again.items()} == {r: o.status for r, o in ended.items()}
        assert self.run(self.manual.provider_entries()) == books

    async def _resolve_reviews(self) -> None:
        """An operator resolves what waits: money goes back, and an order without money ends."""
        for reference, order in (await self._orders()).items():
            if order.status == "review":
                decision = sorted(allowed_decisions(order) - {"confirm"} or {"confirm"})[-1]
                answer = await self.manual.admin_post(
                    f"{reference}/resolve", decision=decision, reason="waits too long"
                )
                assert answer.is_success, (answer.text, order)

    async def _pass_quietly(self, seconds: float) -> None:
        await self.manual.travel(seconds)
        self.manual.finish_delayed_charges()
        self.delivered += self.manual.outgoing_webhooks.webhooks
        await self.manual.deliver_all()
        await self.manual.compare()
        await self.manual.expire_overdue_holds()
        await self.manual.work()

    def _assert_right(self, ended: dict[str, Order], books: list[tuple[str, str, int]]) -> None:
        assert summed(self.run(self.manual.money_entries())) == summed(books), "our entries are those of the provider"
        assert self.run(self.manual.violated_invariants()) == {}
        for reference, order in ended.items():
            assert order.status in FINAL, order
            kept = self.run(self.manual.net_minor(reference))
            if order.dispute is None:
                assert kept == (order.total_minor if order.status == "confirmed" else 0), order
            assert order.status != "refunded" or kept <= 0, order
            assert not (reference in self.cancelled and order.status == "confirmed"), "the fan had cancelled it"
        paying = [held for held in self.run(self._holds()) if held.status == "paying"]
        assert paying == [], "in the end nothing stays held"


def _reachable(status: str) -> set[str]:
    """Every status that allowed transitions can reach."""
    reachable, pending = {status}, [status]
    while pending:
        new = ORDER_TRANSITIONS[pending.pop()] - reachable
        reachable |= new
        pending += new
    return reachable


def test_the_money_is_right_after_every_random_history(redis_url: str, postgres_url: str) -> None:
    run_machine(MoneyMachine, redis_url, postgres_url, settings=bounded(examples=3, steps=25))


def _pass() -> dict[str, str]:
    """A new pass for each request, because a long search outlasts one."""
    return bearer(pass_of())
