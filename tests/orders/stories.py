"""Stories: possible courses of a purchase, which any number of fans take at the same time.

A story ends the same although a worker dies or sleeps anywhere in it: its order is taken over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx

from tests.orders.manual_orders import PAY_TTL_S, TAKEOVER_S, Fault, ManualShop, no_fault
from tests.orders.shop import pass_header, reference_of

RETRIES_MAX = 6
REVIEW_AFTER_S = 900
GRACE_S = 300  # the longest


class Fans:
    """Fans in the same story; `failpoints` has for each where their worker is stopped, and how."""

    def __init__(self, manual: ManualShop, name: str, failpoints: Sequence[tuple[int, str] | None]) -> None:
        self.manual, self.reservations = manual, dict[str, str]()
        self._failpoints = {f"{name}-{n}": failpoint for n, failpoint in enumerate(failpoints)}

    @property
    def references(self) -> list[str]:
        return list(self.reservations)

    async def order(self, method: str = "ok", *, total_minor: int = 6800) -> None:
        """Each fan holds a seat and orders it, and repeats the request while the answer is 503."""

        async def one(key: str, failpoint: tuple[int, str] | None) -> None:
            seat = self.manual.inventory.free_seat(total_minor)
            reservation_id = await self.manual.inventory.hold(lines=[seat])
            reference = reference_of(self.manual, reservation_id, key)
            self.reservations[reference] = reservation_id
            if failpoint is not None:
                self.manual.failpoint.at[reference] = failpoint
            body = self.manual.body(reservation_id, method=method, total_minor=total_minor)
            answer = await _retry_503(lambda: self.manual.post(body, key=key))
            assert (answer.status_code, answer.json()["reference"]) == (202, reference), answer.text

        await asyncio.gather(*(one(key, failpoint) for key, failpoint in self._failpoints.items()))

    async def buy(self, method: str = "ok", *, total_minor: int = 6800) -> None:
        await self.order(method, total_minor=total_minor)
        await self.process()

    async def _post(self, path: str, body: Any = None, *, processed: bool = True) -> None:
        async def one(reference: str) -> None:
            headers = pass_header() | {"idempotency-key": f"{path}-{reference}"}
            url = f"/orders/{reference}/{path}"
            answer = await _retry_503(lambda: self.manual.http.post(url, json=body, headers=headers))
            assert answer.is_success, answer.text

        await asyncio.gather(*map(one, self.references))
        if processed:
            await self.process()

    async def pay_again(self, *, processed: bool = True) -> None:
        await self._post("payments", {"payment": {"provider": "sandbox", "method": "ok"}}, processed=processed)

    async def cancel(self) -> None:
        await self._post("cancel")

    async def refund(self) -> None:
        """An operator requests the refund of each order, twice."""
        for reference in self.references * 2:
            answer = await self.manual.admin_post(f"{reference}/refund", reason="rain")
            assert answer.status_code in (202, 409), answer.text
        await self.process()

    async def finish_delayed_charges(self) -> None:
        """Delayed charges succeed, and their webhooks come."""
        self.manual.finish_delayed_charges()
        await self.manual.deliver_all()
        await self.process()

    async def pay_on_the_hosted_page(self) -> None:
        for reference in self.references:
            url = (await self.manual.view(reference))["attempt"]["checkout_url"]
            assert (await self.manual.sandbox.post(url, data={"choice": "pay"})).status_code in (200, 303)

    async def process(self) -> None:
        """Workers process the orders; the orders of those that died are taken over."""
        for _ in range(3):
            await self.manual.work()
            await self.manual.travel(TAKEOVER_S + 1)
        await self.manual.work()

    async def wait(self, seconds: float) -> None:
        """Then the provider's charges are compared."""
        await self.manual.travel(seconds)
        await self.manual.compare()
        await self.process()

    async def lose_holds(self, *, taken: bool) -> None:
        """The holds expire, unless they have; with `taken` somebody else buys the seats."""
        for reservation_id in self.reservations.values():
            await self.manual.inventory.expire(reservation_id)
            if taken:
                await self.manual.inventory.sell_to_another(reservation_id)


async def _retry_503(send: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
    answer = await send()
    for _ in range(RETRIES_MAX):
        if answer.status_code == 503:
            answer = await send()
    return answer


def fail_first(failing_call: str, how: str) -> Fault:
    """The first such call of each order fails."""
    failed = set[str]()

    def fault(call: str, key: str) -> str | None:
        if call != failing_call or key in failed:
            return None
        failed.add(key)
        return how

    return fault


async def paid(fans: Fans) -> None:
    await fans.buy()


async def free(fans: Fans) -> None:
    await fans.buy(total_minor=0)


async def declined_then_paid(fans: Fans) -> None:
    await fans.buy("decline")
    await fans.pay_again()


async def declined_then_cancelled(fans: Fans) -> None:
    await fans.buy("decline")
    await fans.cancel()


async def declined_and_expired(fans: Fans) -> None:
    await fans.buy("decline")
    await fans.wait(PAY_TTL_S)


async def cancelled_at_once(fans: Fans) -> None:
    """Nobody but the process that wrote the order knows that it was never charged: the provider says so."""
    await fans.order()
    await fans.cancel()


async def cancelled_before_the_second_payment(fans: Fans) -> None:
    await fans.buy("decline")
    await fans.pay_again(processed=False)
    await fans.cancel()


async def cancelled_on_the_hosted_page(fans: Fans) -> None:
    await fans.buy("redirect")
    await fans.cancel()


async def paid_on_the_hosted_page_unnoticed(fans: Fans) -> None:
    """No webhook comes, and the deadline passes before the next sync."""
    await fans.buy("redirect")
    await fans.pay_on_the_hosted_page()
    await fans.wait(PAY_TTL_S)


async def paid_after_cancel(fans: Fans) -> None:
    await fans.buy("success_after_cancel")
    await fans.cancel()
    await fans.finish_delayed_charges()


async def paid_late(fans: Fans) -> None:
    await _late(fans, GRACE_S)
    await fans.finish_delayed_charges()


async def paid_late_and_resold(fans: Fans) -> None:
    await _late(fans, GRACE_S)
    await fans.lose_holds(taken=True)
    await fans.finish_delayed_charges()


async def paid_too_late(fans: Fans) -> None:
    await _late(fans, 0)
    await fans.finish_delayed_charges()


async def _late(fans: Fans, grace_s: int) -> None:
    fans.manual.inventory.sales["grace_s"] = grace_s
    await fans.buy("success_after_cancel")
    await fans.wait(PAY_TTL_S)


async def paid_with_delay(fans: Fans) -> None:
    await fans.buy("late_success")
    await fans.finish_delayed_charges()


async def paid_twice(fans: Fans) -> None:
    await fans.buy("double_success")
    await fans.finish_delayed_charges()


async def charged_by_somebody_else(fans: Fans) -> None:
    """Orders did not make the second charge, and no webhook comes: the comparison finds it."""
    await paid(fans)
    for reference in fans.references:
        key = f"stray-{reference}"
        await fans.manual.charge_at_sandbox(reference, amount_minor=6800, method="refund_fails_once", key=key)
    await fans.wait(61)


async def paid_after_an_outage(fans: Fans) -> None:
    """The provider fails longer than a charge is retried: nothing counts against the payment."""
    fans.manual.connection.fault = lambda call, key: "error"
    await fans.order()
    for _ in range(2):
        await fans.process()
    fans.manual.connection.fault = no_fault
    await fans.process()


async def paid_with_lost_response(fans: Fans) -> None:
    fans.manual.connection.fault = fail_first("POST charges", "answer lost")
    await fans.buy()


async def never_charged(fans: Fans) -> None:
    fans.manual.connection.fault = lambda call, key: "error" if call == "POST charges" else None
    await fans.buy()
    await fans.process()


async def unknown_until_review(fans: Fans) -> None:
    lost = fail_first("POST charges", "answer lost")
    fans.manual.connection.fault = lambda call, key: lost(call, key) or "unreachable"
    await fans.buy()
    await fans.wait(PAY_TTL_S + REVIEW_AFTER_S)
    fans.manual.connection.fault = no_fault
    await fans.wait(70)


async def refunded_in_the_dashboard(fans: Fans) -> None:
    """Of the provider, whose webhooks come."""
    await fans.buy()
    for reference in fans.references:
        [charge] = await fans.manual.charges(reference)
        path, key = f"/charges/{charge['id']}/refunds", {"idempotency-key": f"dashboard-{reference}"}
        await fans.manual.sandbox.post(path, json={"amount_minor": charge["captured_minor"]}, headers=key)
    await fans.manual.deliver_all()
    await fans.process()


async def disputed_and_won(fans: Fans) -> None:
    """The bank takes the money, nobody decides, and it comes back. No webhook comes."""
    await fans.buy()
    for status, after_s in (("open", 61), ("won", 3601)):
        for reference in fans.references:
            [charge] = await fans.manual.charges(reference)
            await fans.manual.sandbox.post(f"/charges/{charge['id']}/dispute", json={"status": status})
        await fans.wait(after_s)


async def refunded(fans: Fans) -> None:
    await fans.buy("refund_fails_once")
    await fans.refund()


async def hold_reacquired(fans: Fans) -> None:
    await fans.order()
    await fans.lose_holds(taken=False)
    await fans.process()


async def refund_rejected(fans: Fans) -> None:
    """The provider rejects the refund for good; an operator keeps the sale."""
    fans.manual.connection.fault = lambda call, key: "refused" if call == "POST refunds" else None
    await fans.buy()
    await fans.refund()
    for reference in fans.references:
        answer = await fans.manual.admin_post(f"{reference}/resolve", decision="confirm", reason="disputed")
        assert answer.is_success, answer.text
    await fans.process()


async def captured_later(fans: Fans) -> None:
    await fans.buy("capture_fails_once")


async def authorised_too_late(fans: Fans) -> None:
    """The charge was cancelled and is authorised nevertheless."""
    await paid_too_late(fans)


async def never_captured(fans: Fans) -> None:
    await fans.buy("capture_fails")


Story = Callable[[Fans], Awaitable[None]]
EXPIRES = "charge sync_provider cancel_charge expire release_hold"
REFUNDS = "mark_paid_late request_refund send_refund mark_refunded"
# How each story ends, and every step that its orders take.
STORIES: dict[Story, tuple[str, str]] = {
    paid: ("confirmed", "charge confirm"),
    free: ("confirmed", "confirm"),
    declined_then_paid: ("confirmed", "charge confirm"),
    declined_then_cancelled: ("cancelled", "charge cancel release_hold"),
    declined_and_expired: ("expired", "charge expire release_hold"),
    cancelled_at_once: ("cancelled", "sync_provider cancel release_hold"),
    cancelled_before_the_second_payment: ("cancelled", "charge abandon_attempt cancel release_hold"),
    cancelled_on_the_hosted_page: ("cancelled", "charge sync_provider cancel_charge cancel release_hold"),
    paid_after_cancel: ("refunded", f"charge sync_provider cancel_charge cancel release_hold {REFUNDS}"),
    paid_late: ("confirmed", f"{EXPIRES} mark_paid_late reacquire_stock"),
    paid_late_and_resold: ("refunded", f"{EXPIRES} reacquire_stock {REFUNDS}"),
    paid_too_late: ("refunded", f"{EXPIRES} {REFUNDS}"),
    paid_with_delay: ("confirmed", "charge sync_provider confirm"),
    paid_twice: ("confirmed", "charge sync_provider confirm request_refund send_refund"),
    paid_on_the_hosted_page_unnoticed: ("confirmed", "charge sync_provider cancel_charge confirm"),
    charged_by_somebody_else: ("confirmed", "charge confirm sync_provider request_refund send_refund"),
    paid_after_an_outage: ("confirmed", "charge confirm"),
    paid_with_lost_response: ("confirmed", "charge confirm"),
    never_charged: ("cancelled", "charge cancel release_hold"),
    unknown_until_review: ("confirmed", "charge review sync_provider confirm"),
    refunded: ("refunded", "charge confirm send_refund return_tickets"),
    refunded_in_the_dashboard: ("refunded", "charge confirm sync_provider return_tickets"),
    disputed_and_won: ("confirmed", "charge confirm sync_provider keep_sold"),
    refund_rejected: ("confirmed", "charge confirm send_refund keep_sold"),
    captured_later: ("confirmed", "charge confirm capture issue_tickets"),
    never_captured: ("cancelled", "charge confirm capture cancel_charge revoke_unpaid_sale"),
    authorised_too_late: ("expired", EXPIRES),
    hold_reacquired: ("confirmed", "charge confirm release_hold mark_paid_late reacquire_stock"),
}
AFTER_CONFIRM = frozenset({authorised_too_late, captured_later, never_captured})
