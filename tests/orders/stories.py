"""Stories of a purchase, which any number of fans live through at the same time.

Every story ends the same although a worker dies or sleeps anywhere in it: a worker away for longer than a lease is
replaced.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx

from tests.orders.manual_orders import LEASE_S, PAY_TTL_S, Fault, ManualShop
from tests.orders.shop import pass_of, reference_of

ASKED_MAX = 6
REVIEW_AFTER_S = 900
HOURS_S = 7200


class Fans:
    """The same story for each fan; `failpoints` say where in it a fan's worker is stopped, and how."""

    def __init__(self, manual: ManualShop, name: str, failpoints: Sequence[tuple[int, str] | None]) -> None:
        self.manual, self.reservations = manual, dict[str, str]()
        self._keys = {reference_of(manual, key): key for key in (f"{name}-{n}" for n in range(len(failpoints)))}
        self.references = list(self._keys)
        manual.failpoint.at |= {
            reference: failpoint for reference, failpoint in zip(self.references, failpoints, strict=True) if failpoint
        }

    async def order(self, method: str = "ok", **hold: Any) -> None:
        """Each makes a hold and orders, and repeats the request while the answer is 503."""

        async def one(reference: str, key: str) -> None:
            held = self.reservations[reference] = self.manual.holds.hold(**hold)
            body = self.manual.body(held, method=method, total_minor=hold.get("total_minor", 6800))
            answer = await _insist(lambda: self.manual.post(body, key=key))
            assert (answer.status_code, answer.json()["reference"]) == (202, reference), answer.text

        await asyncio.gather(*(one(reference, key) for reference, key in self._keys.items()))

    async def _post(self, path: str, body: Any = None) -> None:
        async def one(reference: str) -> None:
            headers = {"authorization": f"Bearer {pass_of()}", "idempotency-key": f"{path}-{reference}"}
            url = f"/orders/{reference}/{path}"
            answer = await _insist(lambda: self.manual.http.post(url, json=body, headers=headers))
            assert answer.is_success, answer.text

        await asyncio.gather(*map(one, self.references))

    async def pay_again(self) -> None:
        await self._post("payments", {"payment": {"provider": "sandbox", "method": "ok"}})

    async def cancel(self) -> None:
        await self._post("cancel")

    async def are_given_back(self) -> None:
        """An operator requests the refund, and clicks twice."""
        for reference in self.references * 2:
            answer = await self.manual.operator(f"{reference}/refund", {"reason": "rain"})
            assert answer.status_code in (202, 409), answer.text

    async def the_money_comes(self) -> None:
        self.manual.keep_promises()
        await self.manual.deliver_all()
        await self.go_on()

    async def go_on(self) -> None:
        """Workers work; those that died are replaced once their leases have expired."""
        for _ in range(3):
            await self.manual.work()
            await self.manual.travel(LEASE_S + 1)
        await self.manual.work()

    async def wait(self, seconds: float) -> None:
        await self.manual.travel(seconds)
        await self.go_on()

    def lose_their_holds(self, *, taken: bool) -> None:
        """Their holds end by force; with `taken` somebody else has the seats now."""
        for held in self.reservations.values():
            self.manual.holds.change(held, status="expired")
        self.manual.holds.taken |= set(self.reservations.values()) if taken else set()


async def _insist(ask: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
    answer = await ask()
    for _ in range(ASKED_MAX):
        if answer.status_code == 503:
            answer = await ask()
    return answer


def first(wanted: str, how: str) -> Fault:
    """The first such call of each order fails in this way."""
    known = set[str]()

    def fault(call: str, about: str) -> str | None:
        if call != wanted or about in known:
            return None
        known.add(about)
        return how

    return fault


async def paid(fans: Fans) -> None:
    await fans.order()
    await fans.go_on()


async def free(fans: Fans) -> None:
    await fans.order(total_minor=0)
    await fans.go_on()


async def declined_then_paid(fans: Fans) -> None:
    await fans.order("decline")
    await fans.go_on()
    await fans.pay_again()
    await fans.go_on()


async def declined_and_left(fans: Fans) -> None:
    await fans.order("decline")
    await fans.go_on()
    await fans.wait(PAY_TTL_S)


async def cancelled_at_once(fans: Fans) -> None:
    await fans.order()
    await fans.cancel()
    await fans.go_on()


async def cancelled_on_the_page(fans: Fans) -> None:
    await fans.order("redirect")
    await fans.go_on()
    await fans.cancel()
    await fans.go_on()


async def cancelled_and_paid(fans: Fans) -> None:
    await fans.order("success_after_cancel")
    await fans.go_on()
    await fans.cancel()
    await fans.go_on()
    await fans.the_money_comes()


async def paid_late(fans: Fans) -> None:
    await _late(fans, HOURS_S)
    await fans.the_money_comes()


async def paid_late_and_taken(fans: Fans) -> None:
    await _late(fans, HOURS_S)
    fans.lose_their_holds(taken=True)
    await fans.the_money_comes()


async def paid_too_late(fans: Fans) -> None:
    await _late(fans, 0)
    await fans.the_money_comes()


async def _late(fans: Fans, grace_s: int) -> None:
    await fans.order("success_after_cancel", grace_s=grace_s)
    await fans.go_on()
    await fans.wait(PAY_TTL_S)


async def paid_slowly(fans: Fans) -> None:
    await fans.order("late_success")
    await fans.go_on()
    await fans.the_money_comes()


async def paid_twice(fans: Fans) -> None:
    await fans.order("double_success")
    await fans.go_on()
    await fans.the_money_comes()


async def paid_and_not_answered(fans: Fans) -> None:
    fans.manual.connection.fault = first("POST charges", "answer lost")
    await fans.order()
    await fans.go_on()


async def never_charged(fans: Fans) -> None:
    fans.manual.connection.fault = lambda call, about: "error" if call == "POST charges" else None
    await fans.order()
    await fans.go_on()
    await fans.go_on()


async def unknown_for_long(fans: Fans) -> None:
    lost = first("POST charges", "answer lost")
    fans.manual.connection.fault = lambda call, about: lost(call, about) or "unreachable"
    await fans.order()
    await fans.go_on()
    await fans.wait(PAY_TTL_S + REVIEW_AFTER_S)
    fans.manual.connection.fault = lambda call, about: None
    await fans.wait(70)


async def given_back(fans: Fans) -> None:
    await fans.order("refund_fails_once")
    await fans.go_on()
    await fans.are_given_back()
    await fans.go_on()


async def hold_lost_and_found(fans: Fans) -> None:
    await fans.order()
    fans.lose_their_holds(taken=False)
    await fans.go_on()


async def given_back_in_vain(fans: Fans) -> None:
    """The provider rejects the refund for good; an operator keeps the sale."""
    fans.manual.connection.fault = lambda call, about: "refused" if call == "POST refunds" else None
    await fans.order()
    await fans.go_on()
    await fans.are_given_back()
    await fans.go_on()
    for reference in fans.references:
        answer = await fans.manual.operator(f"{reference}/resolve", {"decision": "confirm", "reason": "disputed"})
        assert answer.is_success, answer.text
    await fans.go_on()


async def captured_later(fans: Fans) -> None:
    await fans.order("capture_fails_once")
    await fans.go_on()


async def never_captured(fans: Fans) -> None:
    await fans.order("capture_fails")
    await fans.go_on()


Story = Callable[[Fans], Awaitable[None]]
# How each story ends, and the steps whose failpoints everybody in it comes by.
STORIES: dict[Story, tuple[str, str]] = {
    paid: ("confirmed", "charge confirm"),
    free: ("confirmed", "confirm"),
    declined_then_paid: ("confirmed", "charge confirm"),
    declined_and_left: ("expired", "charge expire release_hold"),
    cancelled_at_once: ("cancelled", "abandon_attempt cancel release_hold"),
    cancelled_on_the_page: ("cancelled", "charge cancel_charge cancel release_hold"),
    cancelled_and_paid: (
        "refunded",
        "cancel_charge cancel release_hold sync_provider mark_paid_late request_refund send_refund mark_refunded",
    ),
    paid_late: ("confirmed", "cancel_charge expire release_hold sync_provider mark_paid_late reacquire_stock"),
    paid_late_and_taken: (
        "refunded",
        "sync_provider mark_paid_late reacquire_stock request_refund send_refund mark_refunded",
    ),
    paid_too_late: ("refunded", "sync_provider mark_paid_late request_refund send_refund mark_refunded"),
    paid_slowly: ("confirmed", "charge sync_provider confirm"),
    paid_twice: ("confirmed", "charge sync_provider confirm request_refund send_refund"),
    paid_and_not_answered: ("confirmed", "charge confirm"),
    never_charged: ("cancelled", "charge cancel release_hold"),
    unknown_for_long: ("confirmed", "review sync_provider confirm"),
    given_back: ("refunded", "charge confirm send_refund return_tickets"),
    given_back_in_vain: ("confirmed", "charge confirm send_refund keep_sold"),
    captured_later: ("confirmed", "charge confirm capture issue_tickets"),
    never_captured: ("cancelled", "charge confirm cancel_charge revoke_unpaid_sale"),
    hold_lost_and_found: ("confirmed", "charge confirm mark_paid_late reacquire_stock"),
}
AFTER_CONFIRM = frozenset({captured_later, never_captured})
