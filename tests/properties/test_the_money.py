"""Fans, workers, the provider and inventory act in any order: one order a key, one charge an order, and in the end
every cent pays for a sale or is refunded (invariants 6, 7 and 8).
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar, get_args

import httpx
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from onsale.sandbox.behaviours import Method
from services.orders.order.next_step import Order, Step
from services.orders.order.states import ORDER_TRANSITIONS
from services.orders.processing.job_queue import EnqueueFailed
from tests.orders.manual_orders import LEASE_S, PAY_TTL_S, ManualShop, no_fault, open_manual_shop
from tests.orders.shop import pass_of, reference_of
from tests.properties.examples import bounded, run_machine

T = TypeVar("T")
ORDERS_MAX, ASLEEP_MAX = 6, 4
ANY = st.integers(0, 999)
METHOD = st.sampled_from([method.value for method in Method])
POINTS = ["before the provider", "after the provider", "after inventory", "after the refund"]
POINTS += [f"{when} {step}" for step in get_args(Step) if step != "wait" for when in ("before", "after")]
STOP = st.tuples(st.sampled_from(POINTS), st.sampled_from(["dies", "sleeps"]))
LATER_S = st.sampled_from([1, 5, LEASE_S + 1, 61, PAY_TTL_S + 1, 3601])
TROUBLE = st.lists(st.sampled_from(["unreachable", "error", "busy", "answer lost"]), min_size=1, max_size=4)
DEAFNESS = st.lists(st.sampled_from(["unreachable", "answer lost"]), min_size=1, max_size=3)
DIES = st.sampled_from(["no", "no", "no", "before the ledger", "after the ledger"])
SETTLES = ("being refunded", "keeps no money")  # in the end; money may have come a moment ago
OVER = {"confirmed", "cancelled", "expired", "refunded"}
REST_S = (0, 70, 20, PAY_TTL_S, 20, 20, 1000, 70, 20, 3700, 20, 20)


class Dead(Exception):
    """The process died."""


class TheMoney(RuleBasedStateMachine):
    """One database of orders, stepped by hand; workers and requests die or sleep in the middle of their work."""

    redis_url: str
    postgres_url: str

    @initialize(methods=st.lists(METHOD, min_size=2, max_size=3))
    def begin(self, methods: list[str]) -> None:
        """A few have ordered already."""
        self.loop, self.stack = asyncio.Runner(), AsyncExitStack()
        self.manual: ManualShop = self.loop.run(
            self.stack.enter_async_context(open_manual_shop(self.postgres_url, self.redis_url, inline_timeout_s=0.05))
        )
        self.keys, self.bodies = list[str](), list[dict[str, Any]]()
        self.promised, self.given_up, self.seen = set[str](), set[str](), dict[str, str]()
        self.delivered, self.whole = list[bytes](), False
        for method in methods:
            self.order(method, 7200, "no", True)

    # -- fans ----------------------------------------------------------------------------------------------------------

    @rule(method=METHOD, grace_s=st.sampled_from([0, 7200]), dies=DIES, jobs=st.booleans())
    def order(self, method: str, grace_s: int, dies: str, jobs: bool) -> None:
        """A fan holds and orders. The process may die before or after the transaction; jobs may be refused."""
        if len(self.keys) >= ORDERS_MAX:
            return
        self.keys.append(f"key-{len(self.keys)}")
        self.bodies.append(self.manual.body(self.manual.holds.hold(grace_s=grace_s), method=method))
        self.run(self._order(len(self.keys) - 1, dies=dies, jobs=jobs))

    @rule(which=ANY, dies=DIES, jobs=st.booleans())
    def order_again(self, which: int, dies: str, jobs: bool) -> None:
        """The same key and body once more."""
        if self.keys:
            self.run(self._order(which % len(self.keys), dies=dies, jobs=jobs))

    @rule(which=ANY)
    def order_under_another_key(self, which: int) -> None:
        """The same reservation: its order exists, or it never will."""
        if not self.keys or len(self.keys) >= ORDERS_MAX:
            return
        body = self.bodies[which % len(self.bodies)]
        mine = {k for k, b in zip(self.keys, self.bodies, strict=True) if b["reservation_id"] == body["reservation_id"]}
        real = {reference for key in mine if (reference := reference_of(self.manual, key)) in self.seen}
        self.keys.append(f"other-{uuid.uuid4().hex}")
        self.bodies.append(body)
        self.run(self._order(len(self.keys) - 1, dies="no", jobs=True))
        assert not (real and reference_of(self.manual, self.keys[-1]) in self.promised), "two orders, one reservation"

    async def _order(self, number: int, *, dies: str, jobs: bool) -> None:
        key, checkout, accept = self.keys[number], self.manual.state.checkout, self.manual.state.job_queue
        place, wake_up = checkout.writer.insert, accept.enqueue

        async def dying(draft: Any, *, in_request: bool) -> Any:
            if dies == "after the ledger":
                await place(draft, in_request=in_request)
            raise Dead

        async def refused(*_: Any) -> None:
            raise EnqueueFailed

        checkout.writer.insert = dying if dies != "no" else place  # type: ignore[method-assign]
        accept.enqueue = wake_up if jobs else refused  # type: ignore[method-assign, assignment]
        try:
            answer = await self.manual.post(self.bodies[number], key=key)
        finally:
            checkout.writer.insert, accept.enqueue = place, wake_up  # type: ignore[method-assign]
        if answer.status_code == 202:
            self.promised.add(answer.json()["reference"])
            assert answer.json()["reference"] == reference_of(self.manual, key)
        else:
            assert answer.status_code in ((409, 410, 503) if dies == "no" else (409, 410, 500, 503)), answer.text

    @rule(which=ANY, method=METHOD, key=st.sampled_from(["first", "second"]))
    def pay_again(self, which: int, method: str, key: str) -> None:
        body = {"payment": {"provider": "sandbox", "method": method}}
        self._of_some(which, "payments", body=body, headers={"idempotency-key": key}, lawful=(202, 409, 410, 422))

    @rule(which=ANY)
    def cancel(self, which: int) -> None:
        self._of_some(which, "cancel", lawful=(200, 202, 409))

    @rule(which=ANY, choice=st.sampled_from(["pay", "decline", "cancel"]))
    def press_on_the_page(self, which: int, choice: Any) -> None:
        charges = list(self.manual.books._charges)
        if charges:
            self.run(self._at_provider(lambda: self.manual.till.choose(charges[which % len(charges)], choice)))

    @rule(which=ANY)
    def give_back(self, which: int) -> None:
        """By an operator."""
        if order := self._some(which):
            answer = self.run(self.manual.operator(f"{order}/refund", {"reason": "rain"}))
            assert answer.status_code in (202, 409), answer.text

    def _some(self, which: int) -> str | None:
        return list(self.seen)[which % len(self.seen)] if self.seen else None

    def _of_some(
        self, which: int, path: str, *, lawful: tuple[int, ...], body: Any = None, headers: Any = None
    ) -> httpx.Response:
        order = self._some(which) or "AAAAAAAAAAAA"
        asked = self.manual.http.post(f"/orders/{order}/{path}", json=body, headers=_pass() | (headers or {}))
        answer = self.run(asked)
        assert answer.status_code in (*lawful, *(() if order in self.seen else (404,))), answer.text
        return answer

    # -- provider and post ---------------------------------------------------------------------------------------------

    @rule()
    def a_promise_is_kept(self) -> None:
        self.run(self._at_provider(self.manual.keep_promises))

    @rule(which=ANY, times=st.integers(1, 2), lost=st.booleans())
    def a_webhook_comes(self, which: int, times: int, lost: bool) -> None:
        """Any of those on their way, so they come in any order, repeatedly, or never."""
        webhooks = self.manual.outgoing_webhooks.webhooks
        if webhooks:
            webhook = webhooks.pop(which % len(webhooks))
            self.delivered.append(webhook)
            for _ in range(0 if lost else times):
                self.run(self.manual.deliver(webhook))

    @rule(how=TROUBLE)
    def the_provider_fails(self, how: list[str]) -> None:
        self.manual.connection.fault = lambda call, about: how.pop() if how else None

    @rule(how=DEAFNESS)
    def inventory_fails(self, how: list[str]) -> None:
        self.manual.inventory.fault = lambda verb, about: how.pop() if how else None

    @rule()
    def inventory_asks(self) -> None:
        self.run(self.manual.inventory_asks())

    @rule(which=ANY, taken=st.booleans())
    def an_ended_hold_is_taken(self, which: int, taken: bool) -> None:
        """Somebody else buys the released seats of an order."""
        holds = self.manual.holds
        gone = [held.reservation_id for held in holds.reservations.values() if held.status in ("cancelled", "expired")]
        if gone and taken:
            holds.taken.add(gone[which % len(gone)])

    # -- workers and time ----------------------------------------------------------------------------------------------

    @rule()
    def work(self) -> None:
        self.run(self.manual.work())

    @rule(stop=STOP)
    def a_worker_stops(self, stop: tuple[str, str]) -> None:
        """The next worker that passes this failpoint dies there, or sleeps."""
        if stop[1] == "dies" or len(self.manual.failpoint.asleep) < ASLEEP_MAX:
            self.manual.failpoint.next = stop
        self.run(self.manual.work())

    @rule()
    def sleepers_wake(self) -> None:
        self.run(self.manual.failpoint.wake())

    @rule(seconds=LATER_S)
    def time_passes(self, seconds: float) -> None:
        self.run(self.manual.travel(seconds))

    # -- what must be true ---------------------------------------------------------------------------------------------

    def run(self, work: Awaitable[T]) -> T:
        self.whole = False

        async def go() -> T:
            return await work

        return self.loop.run(go())

    async def _at_provider(self, act: Callable[[], Any]) -> None:
        """The provider sets timers, which need a running loop."""
        act()

    @invariant()
    def every_step_was_lawful_and_nothing_was_done_twice(self) -> None:
        self.run(self.manual.failpoint.until_still(self.manual.state.worker_pool._running))
        orders = self.run(self._orders())
        assert self.promised <= set(orders), "an order that was promised is gone"
        for reference, order in orders.items():
            before = self.seen.get(reference, "pending")
            assert order.status in _reachable(before), f"{before} became {order.status}"
            self.seen[reference] = order.status
            if order.status == "cancelled" and order.cancel_requested:
                self.given_up.add(reference)
            self._stock_agrees(order)
        broken = self.run(self.manual.audit())
        assert not [what for what in broken if not what.endswith(SETTLES)], broken
        self.whole = True

    async def _orders(self) -> dict[str, Order]:
        found = {reference: await self.manual.state.repository.read(reference) for reference in self._references()}
        return {reference: order for reference, order in found.items() if order is not None}

    def _references(self) -> set[str]:
        return {reference_of(self.manual, key) for key in self.keys}

    def _stock_agrees(self, order: Order) -> None:
        """Sold at inventory before it is confirmed; released only after it has ended."""
        held = self.manual.holds.reservations[order.reservation_id]
        mine = held.order_reference == order.reference
        assert order.status != "confirmed" or (mine and held.status == "confirmed"), (order, held)
        assert order.status not in ("pending", "review") or (mine and held.status in ("paying", "confirmed")), held

    def teardown(self) -> None:
        try:
            if self.whole:
                self._everything_comes_to_rest()
        finally:
            self.loop.run(self.stack.aclose())
            self.loop.close()

    def _everything_comes_to_rest(self) -> None:
        """All parts work again and hours pass; then every webhook of the day comes once more."""
        self.manual.failpoint.next, self.manual.connection.fault, self.manual.inventory.fault = None, no_fault, no_fault
        self.sleepers_wake()
        for seconds in REST_S:
            self.run(self._rest(seconds))
        self.run(self._a_person_decides())
        self.run(self._rest(70))
        ended, books = self.run(self._orders()), self.run(self.manual.booked())
        self._is_right(ended, books)
        for webhook in reversed(self.delivered):
            self.run(self.manual.deliver(webhook))
        for seconds in (1, 70):
            self.run(self._rest(seconds))
        again = self.run(self._orders())
        assert {r: o.status for r, o in again.items()} == {r: o.status for r, o in ended.items()}
        assert self.run(self.manual.booked()) == books

    async def _a_person_decides(self) -> None:
        """About a payment whose outcome was unknown for too long and stays so."""
        for reference, order in (await self._orders()).items():
            if order.status == "review" and order.end_reason == "unknown":
                decided = {"decision": "refund" if order.charges else "expire", "reason": "never heard of"}
                assert (await self.manual.operator(f"{reference}/resolve", decided)).is_success

    async def _rest(self, seconds: float) -> None:
        await self.manual.travel(seconds)
        self.manual.keep_promises()
        self.delivered += self.manual.outgoing_webhooks.webhooks
        await self.manual.deliver_all()
        await self.manual.inventory_asks()
        await self.manual.work()

    def _is_right(self, ended: dict[str, Order], books: list[tuple[str, str, int]]) -> None:
        assert self.run(self.manual.entries()) == books, "our books and the provider's"
        assert self.run(self.manual.audit()) == {}
        for reference, order in ended.items():
            assert order.status in OVER, order
            kept = self.run(self.manual.net_minor(reference))
            assert kept == (order.total_minor if order.status == "confirmed" else 0), order
            assert not (reference in self.given_up and order.status == "confirmed"), "the fan had given it up"
        paying = [held for held in self.manual.holds.reservations.values() if held.status == "paying"]
        assert paying == [], "with nobody about nothing stays held"


def _reachable(status: str) -> set[str]:
    """Every status it may have reached by allowed transitions."""
    found, look_at = {status}, [status]
    while look_at:
        more = ORDER_TRANSITIONS[look_at.pop()] - found
        found |= more
        look_at += more
    return found


def test_the_money_is_always_right_in_the_end(redis_url: str, postgres_url: str) -> None:
    run_machine(TheMoney, redis_url, postgres_url, settings=bounded(examples=8, steps=25))


def _pass() -> dict[str, str]:
    """Made anew each time: a deep search lasts longer than a pass."""
    return {"authorization": f"Bearer {pass_of()}"}
