"""What may become of a purchase, as stories that any number of fans live through at the same time.

Every story is told so that it ends the same although a worker dies or sleeps anywhere in it: whoever is away for longer
than a lease is replaced.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx

from tests.orders.manual_orders import LEASE_S, PAY_TTL_S, Desk, Mood
from tests.orders.shop import pass_of, reference_of

ASKED_MAX = 6
REVIEW_AFTER_S = 900
HOURS_S = 7200


class Fans:
    """The same story for each; `traps` say at which point of it a fan's worker is stopped, and how."""

    def __init__(self, desk: Desk, name: str, traps: Sequence[tuple[int, str] | None]) -> None:
        self.desk, self.reservations = desk, dict[str, str]()
        self._keys = {reference_of(desk, key): key for key in (f"{name}-{n}" for n in range(len(traps)))}
        self.references = list(self._keys)
        desk.trap.at |= {reference: trap for reference, trap in zip(self.references, traps, strict=True) if trap}

    async def order(self, method: str = "ok", **hold: Any) -> None:
        """Each holds and orders, and asks again while the answer is 503."""

        async def one(reference: str, key: str) -> None:
            held = self.reservations[reference] = self.desk.holds.hold(**hold)
            body = self.desk.body(held, method=method, total_minor=hold.get("total_minor", 6800))
            answer = await _insist(lambda: self.desk.post(body, key=key))
            assert (answer.status_code, answer.json()["reference"]) == (202, reference), answer.text

        await asyncio.gather(*(one(reference, key) for reference, key in self._keys.items()))

    async def _post(self, path: str, body: Any = None) -> None:
        async def one(reference: str) -> None:
            headers = {"authorization": f"Bearer {pass_of()}", "idempotency-key": f"{path}-{reference}"}
            url = f"/orders/{reference}/{path}"
            answer = await _insist(lambda: self.desk.http.post(url, json=body, headers=headers))
            assert answer.is_success, answer.text

        await asyncio.gather(*map(one, self.references))

    async def pay_again(self) -> None:
        await self._post("payments", {"payment": {"provider": "sandbox", "method": "ok"}})

    async def cancel(self) -> None:
        await self._post("cancel")

    async def are_given_back(self) -> None:
        """By an operator, who clicks twice."""
        for reference in self.references * 2:
            answer = await self.desk.operator(f"{reference}/refund", {"reason": "rain"})
            assert answer.status_code in (202, 409), answer.text

    async def the_money_comes(self) -> None:
        self.desk.keep_promises()
        await self.desk.deliver_all()
        await self.go_on()

    async def go_on(self) -> None:
        """Workers work; those that died are replaced once their leases have run out."""
        for _ in range(3):
            await self.desk.work()
            await self.desk.travel(LEASE_S + 1)
        await self.desk.work()

    async def wait(self, seconds: float) -> None:
        await self.desk.travel(seconds)
        await self.go_on()

    def lose_their_holds(self, *, taken: bool) -> None:
        """By force; `taken`: somebody else has the seats now."""
        for held in self.reservations.values():
            self.desk.holds.change(held, status="expired")
        self.desk.holds.taken |= set(self.reservations.values()) if taken else set()


async def _insist(ask: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
    answer = await ask()
    for _ in range(ASKED_MAX):
        if answer.status_code == 503:
            answer = await ask()
    return answer


def first(wanted: str, how: str) -> Mood:
    """The first such call of everybody goes wrong."""
    known = set[str]()

    def mood(call: str, about: str) -> str | None:
        if call != wanted or about in known:
            return None
        known.add(about)
        return how

    return mood


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
    fans.desk.line.mood = first("POST charges", "answer lost")
    await fans.order()
    await fans.go_on()


async def never_charged(fans: Fans) -> None:
    fans.desk.line.mood = lambda call, about: "error" if call == "POST charges" else None
    await fans.order()
    await fans.go_on()
    await fans.go_on()


async def unknown_for_long(fans: Fans) -> None:
    lost = first("POST charges", "answer lost")
    fans.desk.line.mood = lambda call, about: lost(call, about) or "unreachable"
    await fans.order()
    await fans.go_on()
    await fans.wait(PAY_TTL_S + REVIEW_AFTER_S)
    fans.desk.line.mood = lambda call, about: None
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
    """The provider will never give it back; a person decides that the sale stands."""
    fans.desk.line.mood = lambda call, about: "refused" if call == "POST refunds" else None
    await fans.order()
    await fans.go_on()
    await fans.are_given_back()
    await fans.go_on()
    for reference in fans.references:
        answer = await fans.desk.operator(f"{reference}/resolve", {"decision": "confirm", "reason": "disputed"})
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
    declined_and_left: ("expired", "charge expire release"),
    cancelled_at_once: ("cancelled", "give_up_attempt cancel release"),
    cancelled_on_the_page: ("cancelled", "charge cancel_charge cancel release"),
    cancelled_and_paid: ("refunded", "cancel_charge cancel release look own_up refund send_refund close_refunded"),
    paid_late: ("confirmed", "cancel_charge expire release look own_up retake"),
    paid_late_and_taken: ("refunded", "look own_up retake refund send_refund close_refunded"),
    paid_too_late: ("refunded", "look own_up refund send_refund close_refunded"),
    paid_slowly: ("confirmed", "charge look confirm"),
    paid_twice: ("confirmed", "charge look confirm refund send_refund"),
    paid_and_not_answered: ("confirmed", "charge confirm"),
    never_charged: ("cancelled", "charge cancel release"),
    unknown_for_long: ("confirmed", "review look confirm"),
    given_back: ("refunded", "charge confirm send_refund return_tickets"),
    given_back_in_vain: ("confirmed", "charge confirm send_refund stand"),
    captured_later: ("confirmed", "charge confirm capture issue"),
    never_captured: ("cancelled", "charge confirm cancel_charge take_back"),
    hold_lost_and_found: ("confirmed", "charge confirm own_up retake"),
}
AFTER_CONFIRM = frozenset({captured_later, never_captured})
