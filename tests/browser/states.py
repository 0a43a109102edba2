"""Brings the fan pages into every state they can show. Answers about the line, the place, the hold and the order are
made up here; catalogue, prices and stock are as recorded.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from playwright.async_api import expect

from tests.browser.recorded.api_documents import problem
from tests.browser.recorded.site import NO_ANSWER, RecordedSite, recorded

Json = dict[str, Any]
REFERENCE = "ABCDEFGH2345"
SALE_STARTS_IN_S = 3600
SEAT_STATUS = {"A-1-3": "reserved", "A-1-4": "sold", "A-1-5": "blocked"}
TAKEN = recorded()
RESERVATION: Json = TAKEN["POST /events/hall/reservations"] | {
    "reservation_id": "a" * 32, "seats": ["A-1-1", "A-3-12"], "ga": [{"section_id": "GA1", "quantity": 2}],
    "total_amount_minor_units": 85000, "currency": "EUR", "status": "pending_payment",
}  # fmt: skip
BILL: Json = TAKEN["POST /orders/quote"] | {
    "total_minor": 88275, "currency": "EUR",
    "extras": [{"kind": "discount", "name": "EARLY", "percent": "5", "amount_minor": -4250, "included": False},
               {"kind": "fee", "name": "Booking fee", "percent": None, "amount_minor": 7525, "included": False},
               {"kind": "tax", "name": "VAT", "percent": "19", "amount_minor": 14094, "included": True}],
}  # fmt: skip
CODE = b"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 9 9'><path d='M0 0h9v9H0z'/></svg>"
ISSUED: Json = TAKEN[f"GET /orders/{REFERENCE}/tickets"]
TICKETS: Json = ISSUED | {"tickets": [
    ISSUED["tickets"][0] | {"ticket_id": f"T{n}ABCDEFGHJK", "section_id": "A", "seat_id": "A-1-1", "status": status}
    for n, status in enumerate(("valid", "void"))
]}  # fmt: skip


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


KEPT = f"GET /events/EVENT/reservations/{RESERVATION['reservation_id']}"  # of a state before, in the page's memory
Show = Callable[["MockedPage"], Awaitable[None]]


class MockedPage:
    """A page of the recorded site; in paths, `EVENT` stands for its event."""

    def __init__(self, page: Any, site: RecordedSite, event_id: str = "orchestra", **changes: Any) -> None:
        """`changes` are fields of the event."""
        self.page, self.site, self.event_id, self._changes = page, site, event_id, changes

    async def show(self, path: str, answers: Json) -> None:
        """Loads the page afresh; `answers` maps `METHOD path` to the body."""
        await self.page.context.set_offline(False)
        await self.page.goto("about:blank")
        self.site.answers.clear()
        self.site.answers |= recorded()
        self.site.change(f"GET /events/{self.event_id}", **self._changes)
        self.answer({"GET /events/EVENT/sections/updates": NO_ANSWER, KEPT: problem("unknown-reservation"), **answers})
        await self.page.goto(f"{self.site.url}{self._of_event(path)}")

    def answer(self, answers: Json) -> None:
        for request, body in answers.items():
            self.site.answers[self._of_event(request)] = body

    def answered(self, request: str) -> Json:
        answer: Json = self.site.answers[self._of_event(request)]
        return answer

    async def expect(self, selector: str) -> None:
        await expect(self.page.locator(selector)).to_be_visible()

    async def click(self, selector: str) -> None:
        await self.page.locator(selector).click()

    def _of_event(self, path: str) -> str:
        return path.replace("EVENT", self.event_id)


QUEUE = "/events/EVENT/queue"
NO_PLACE = problem("not-found")


def frame(state: str, **more: Any) -> Json:
    return TAKEN["GET /events/orchestra/queue"] | {
        "state": state, "epoch": 1, "head_seq": 4_321, "tail_seq": 123_456, "rate_per_s": 50, "live_ratio": 1,
        "message": None, "sale_starts_at": None, "poll_after_ms": 60_000, **more,
    }  # fmt: skip


def place(status: str, **more: Any) -> Json:
    return TAKEN["waiting"] | {
        "status": status, "join_seq": 123_456, "position_in_queue": 119_135, "head_seq": 4_321,
        "estimated_wait_time": 3_000, "estimated_wait_low": 2_000, "estimated_wait_high": 3_900,
        "estimate_changed": None, "poll_after_ms": 60_000, "message": None, **more,
    }  # fmt: skip


async def show_event(mocked: MockedPage, line: Json, own_place: Json = NO_PLACE, more: Json | None = None) -> None:
    """Once the script is at work: the document alone shows a lobby, too, whose button sends a form."""
    async with mocked.page.expect_request("**/queue/status"):
        await mocked.show("/e/EVENT", {f"GET {QUEUE}": line, f"GET {QUEUE}/status": own_place, **(more or {})})


# The event page, before the fan joins


async def before_the_sale(mocked: MockedPage) -> None:
    estimate = {"seconds_per_place": None, "estimate_changed": None}
    general = {"name": "General", "head_seq": 0, "tail_seq": 0, "code_required": False, **estimate}
    lanes = {"0": general, "1": general | {"name": "Club", "code_required": True}}
    await show_event(mocked, frame("prequeue", sale_starts_at=in_seconds(SALE_STARTS_IN_S * 50), lanes=lanes))
    await mocked.expect("#lobby-countdown")
    unknown_code = problem("code-unknown", "This code opens no lane of this line.")
    mocked.answer({f"POST {QUEUE}": unknown_code})
    await mocked.page.locator("#code").fill("WRONG")
    await mocked.click("#join")
    await mocked.expect("#code-error")


async def during_the_sale(mocked: MockedPage) -> None:
    await show_event(mocked, frame("open", message="Doors at eight. Trains run until two in the morning."))
    await mocked.expect("#notice")


async def joining(mocked: MockedPage) -> None:
    await show_event(mocked, frame("open"), more={f"POST {QUEUE}": NO_ANSWER})
    await mocked.click("#join")
    await mocked.expect("#join[aria-busy=true]")
    await mocked.page.evaluate("() => { document.getElementById('proof').hidden = false; }")


async def line_full(mocked: MockedPage) -> None:
    full = problem("line-full", "The line is as long as it may get. Come back later.")
    await show_event(mocked, frame("last_chance"), more={f"POST {QUEUE}": full})
    await mocked.click("#join")
    await mocked.expect("#trouble")


async def after_the_sale(mocked: MockedPage) -> None:
    await show_event(mocked, frame("sold_out"))
    await mocked.expect("#lobby")


async def unknown_event(mocked: MockedPage) -> None:
    await mocked.show("/e/EVENT", {"GET /events/EVENT": problem("unknown-event", "No such event is on sale here.")})
    await mocked.expect("#lost")


# In line


async def waiting(mocked: MockedPage) -> None:
    changed = {"reason": "throttled", "at": in_seconds(-5)}
    await show_event(mocked, frame("draining"), place("waiting", estimate_changed=changed))
    await mocked.page.evaluate("() => { document.getElementById('tell-me').hidden = false; }")
    await mocked.expect("#estimate-changed")


async def waiting_for_the_start(mocked: MockedPage) -> None:
    await show_event(mocked, frame("prequeue", sale_starts_at=in_seconds(SALE_STARTS_IN_S)), place("prequeue"))
    await mocked.expect("#start-countdown")


async def offline(mocked: MockedPage) -> None:
    await show_event(mocked, frame("open"), place("waiting"))
    await mocked.expect("#waiting")
    await mocked.page.context.set_offline(True)
    await mocked.expect("#line-as-of")


async def reconnecting(mocked: MockedPage) -> None:
    await show_event(mocked, frame("open"), place("waiting"))
    await mocked.expect("#waiting")
    await mocked.page.route("**/sections/updates*", lambda route: route.abort())
    await mocked.page.reload()
    await mocked.expect("#connection[data-state=polling], #connection[data-state=reconnecting]")
    await mocked.page.unroute("**/sections/updates*")


async def lottery_drawn(mocked: MockedPage) -> None:
    value = {"what": "the closing number of an index", "known_at": in_seconds(-60)}
    published = {
        "algorithm": "onsale-lottery-1", "event_id": "EVENT", "epoch": 1, "stage": "drawn",
        "queue_opens_at": in_seconds(-900), "committed_at": in_seconds(-999), "closed_at": in_seconds(-300),
        "counted_at": in_seconds(-200), "drawn_at": in_seconds(-30),
        "rules": {"entry_closes_at": in_seconds(-300), "public_value": value},
        "commitment": "ab" * 32, "seed": "cd" * 32,
        "public_value": "24331.09", "entrants": {"0": {"n": 50, "hash": "ef" * 32}},
    }  # fmt: skip
    own_place = place("waiting", join_seq=7, rank=3, position_in_queue=3, head_seq=0)
    await show_event(mocked, frame("open", lottery="drawn", head_seq=0), own_place, {f"GET {QUEUE}/lottery": published})
    await mocked.click("#lottery-check")
    await mocked.expect("#lottery-checks [data-holds=false] >> nth=0")


async def lottery_closed(mocked: MockedPage) -> None:
    own_place = place("prequeue", position_in_queue=None, head_seq=0, rank=None)
    await show_event(
        mocked, frame("prequeue", lottery="closed", sale_starts_at=in_seconds(SALE_STARTS_IN_S)), own_place
    )
    await mocked.expect("#lottery-text")


# Called and admitted

ADMITTED: Json = TAKEN["POST /events/hall/queue/pass"]


async def called_while_hidden(mocked: MockedPage) -> None:
    await show_event(mocked, frame("open"), place("waiting"))
    await mocked.expect("#waiting")
    await mocked.page.evaluate(
        "() => Object.defineProperty(document, 'hidden', { get: () => true, configurable: true })"
    )
    mocked.answer({f"GET {QUEUE}/status": place("ready", until=in_seconds(110))})
    await mocked.page.evaluate("() => window.dispatchEvent(new Event('online'))")
    await mocked.page.evaluate("() => { delete document.hidden; window.dispatchEvent(new Event('online')); }")
    await mocked.page.evaluate(
        "() => Object.defineProperty(document, 'hidden', { get: () => true, configurable: true })"
    )
    await mocked.expect("#come-in")


async def claiming(mocked: MockedPage) -> None:
    await show_event(mocked, frame("open"), place("ready", until=in_seconds(110)), {f"POST {QUEUE}/pass": NO_ANSWER})
    await mocked.expect("#called-progress")


async def show_admitted(mocked: MockedPage, more: Json | None = None, *, until_s: float = 900) -> None:
    claimed = {**ADMITTED, "expires_at": in_seconds(until_s)}
    await show_event(mocked, frame("open"), place("admitted"), {f"POST {QUEUE}/pass": claimed, **(more or {})})


async def choosing(mocked: MockedPage) -> None:
    await show_admitted(mocked, until_s=100)
    await mocked.expect("#session-soon")


async def choosing_seats(mocked: MockedPage) -> None:
    page = TAKEN["GET /events/orchestra/sections/A/seats"]
    seats = [seat | {"status": SEAT_STATUS.get(seat["seat_id"], "available")} for seat in page["seats"]]
    seats_taken = problem("seats-taken", "Taken.", seats=["A-2-1"])
    await show_admitted(
        mocked,
        {
            "GET /events/EVENT/sections/A/seats": page | {"seats": seats},
            "POST /events/EVENT/reservations": seats_taken,
        },
    )
    await mocked.click("#section-GA1 .step >> nth=1")
    await mocked.click("#section-A button")
    for n in (0, 12, 13):
        await mocked.click(f"#seats .seat >> nth={n}")
    await expect(mocked.page.locator("#basket-total")).not_to_be_empty()
    await mocked.click("#hold")
    await mocked.expect("#trouble")


async def held(mocked: MockedPage) -> None:
    bad_code = problem("promo-code-not-valid", "This promo code is not valid.")
    hold = {**RESERVATION, "reserved_until": in_seconds(55)}
    await show_admitted(mocked, {"POST /events/EVENT/reservations": hold, "POST /orders/quote": BILL})
    await mocked.click("#best-find")
    await mocked.expect("#bill")
    await mocked.expect("#more-time")
    mocked.answer({"POST /orders/quote": bad_code})
    await mocked.page.locator("#promo").fill("WRONG")
    await mocked.click("#promo-apply")
    await expect(mocked.page.locator("#promo-note")).not_to_be_empty()


async def paying(mocked: MockedPage, answer: Any = NO_ANSWER, shows: str = "#pay[aria-busy=true]") -> None:
    await held(mocked)
    mocked.answer({"POST /orders": answer})
    await mocked.page.locator("#name").fill("Ada Lovelace")
    await mocked.page.locator("#email").fill("ada@example.org")
    await mocked.click("#pay")
    await mocked.expect(shows)


async def naming(mocked: MockedPage) -> None:
    """Each ticket needs a name, and the first has none."""
    hold = {**RESERVATION, "reserved_until": in_seconds(500)}
    quote = BILL | {"names": "ticket"}
    await show_admitted(mocked, {"POST /events/EVENT/reservations": hold, "POST /orders/quote": quote})
    await mocked.click("#best-find")
    await expect(mocked.page.locator("#names-fields input")).to_have_count(3)
    for field in ("#name", "#names-fields input >> nth=1", "#names-fields input >> nth=2"):
        await mocked.page.locator(field).fill("Ada Lovelace")
    await mocked.page.locator("#email").fill("ada@example.org")
    await mocked.page.locator("#names-fields input >> nth=0").fill(" ")
    await mocked.click("#pay")
    await mocked.expect("#name-1-error")


def ended(status: str, why: str | None = None) -> Show:
    async def show(mocked: MockedPage) -> None:
        await show_event(mocked, frame("open"), place(status, why=why))
        await mocked.expect("#ended")

    return show


# The order page


def order(status: str, *, shows: str = "#order", **more: Any) -> Show:
    async def show(mocked: MockedPage) -> None:
        body = TAKEN[f"GET /orders/{REFERENCE}"] | {
            "reference": REFERENCE, "event_id": mocked.event_id, "status": status, "progress": None,
            "total_minor": 88275, "currency": "EUR", "charged_minor": 88275, "refunded_minor": 0, "refunding_minor": 0,
            "extras": BILL["extras"], "expires_at": in_seconds(200), "confirmed_at": None, "fulfilled_at": None,
            "cancel_asked": False, "extended": False, "oversold": False, "end_reason": None, "attempt": None,
            "customer": {"name": "Ada", "email": "ada@example.org"}, **more,
        }  # fmt: skip
        seat, floor = body["lines"][0], body["lines"][-1]
        body["lines"] = [seat | {"seat_id": "A-1-1", "unit_price_minor": 41000, "quantity": 1},
                         floor | {"section_id": "GA1", "unit_price_minor": 44000, "quantity": 2}]  # fmt: skip
        get_order = f"GET /orders/{REFERENCE}"
        codes = {f"GET /orders/{REFERENCE}/tickets/{each['ticket_id']}.svg": CODE for each in TICKETS["tickets"]}
        answers = {get_order: body, f"{get_order}/updates": NO_ANSWER, f"{get_order}/tickets": TICKETS, **codes}
        await mocked.show(f"/o/{REFERENCE}", answers)
        await mocked.expect(shows)
        await expect(mocked.page.locator("#tickets li").first).to_be_visible()

    return show


async def changing_names(mocked: MockedPage) -> None:
    named = TICKETS | {"names": "ticket", "names_until": "2030-01-01T20:00:00Z", "tickets": [
        one | {"name": "Ada Lovelace"} for one in TICKETS["tickets"]
    ]}  # fmt: skip
    await order("confirmed", shows="#papers", **CONFIRMED)(mocked)
    mocked.answer({f"GET /orders/{REFERENCE}/tickets": named})
    await mocked.page.reload()
    await mocked.click("#names-change summary")
    await mocked.expect("#names-save")


async def order_without_a_key(mocked: MockedPage) -> None:
    await mocked.show(f"/o/{REFERENCE}", {f"GET /orders/{REFERENCE}": NO_PLACE})
    await mocked.expect("#lost")


async def order_declined(mocked: MockedPage) -> None:
    await order("pending", shows="#retry", progress="your-turn", attempt=DECLINED)(mocked)
    mocked.answer({f"POST /orders/{REFERENCE}/payments": NO_ANSWER})
    await mocked.click("#pay-again")
    await mocked.expect("#pay-again[aria-busy=true]")


async def catalogue(mocked: MockedPage) -> None:
    await mocked.show("/", {})
    await mocked.expect("#events .state[data-state=open] >> nth=0")


async def page_not_found(mocked: MockedPage) -> None:
    await mocked.show("/nowhere", {})
    await mocked.expect("h1")


CONFIRMED = {"confirmed_at": in_seconds(-60), "fulfilled_at": in_seconds(-50)}
DOUBTFUL = problem("email-likely-mistyped", "Mistyped.", suggestion="a@gmail.com")
DECLINED = {"n": 1, "status": "failed", "reason": "card_declined", "checkout_url": None}
ON_PROVIDER_PAGE = {"n": 1, "status": "requires_action", "reason": None, "checkout_url": "https://pay.example/"}
STATES: dict[str, Show] = {
    "catalogue": catalogue,
    "page not found": page_not_found,
    "before": before_the_sale,
    "during": during_the_sale,
    "joining": joining,
    "line full": line_full,
    "after": after_the_sale,
    "unknown event": unknown_event,
    "waiting": waiting,
    "waiting for the start": waiting_for_the_start,
    "offline": offline,
    "reconnecting": reconnecting,
    "lottery drawn": lottery_drawn,
    "lottery closed": lottery_closed,
    "called while hidden": called_while_hidden,
    "claiming": claiming,
    "choosing": choosing,
    "choosing seats": choosing_seats,
    "held": held,
    "naming": naming,
    "paying": paying,
    "address in doubt": lambda mocked: paying(mocked, DOUBTFUL, "#email-meant"),
    "session ended": ended("expired", "session"),
    "completed": ended("completed"),
    "order processing": order("pending", shows="#progress", progress="paying"),
    "order on the provider's page": order("pending", shows="#act", progress="your-turn", attempt=ON_PROVIDER_PAGE),
    "order declined": order_declined,
    "order cancelling": order("pending", shows="#progress", progress="cancelling", cancel_asked=True),
    "order confirmed": order("confirmed", shows="#papers", **CONFIRMED),
    "changing names": changing_names,
    "order without mail": order("confirmed", shows="#address-text", mail_failed=True, **CONFIRMED),
    "order cancelled": order("cancelled", shows="#again"),
    "order expired": order("expired", shows="#again"),
    "order in review": order("review"),
    "order disputed": order("review", dispute="open", disputed_minor=88275, end_reason="disputed", **CONFIRMED),
    "order taken back by the bank": order("refunded", dispute="lost", disputed_minor=88275, **CONFIRMED),
    "order partly refunded": order("partially_refunded", shows="#refunded-line", refunded_minor=900, **CONFIRMED),
    "order refunded": order("refunded", shows="#refunding-line", refunding_minor=900, oversold=True, **CONFIRMED),
    "order without a key": order_without_a_key,
}
