"""Brings the fan pages into every state they can show. The test answers requests for the line, the place, the hold and
the order; catalogue, prices and stock come from the suite.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from playwright import sync_api

from tests.browser.steps import put_on_sale
from tests.support.running.suite import RunningSuite

Json = dict[str, Any]
API_REQUEST = re.compile(r"//[^/]+/(events|orders|payments)(/|\?|$)")
REFERENCE = "ABCDEFGH2345"
NO_ANSWER = "no answer"
PROBLEM = "/problems/a-test"
SALE_STARTS_IN_S = 3600
SECTIONS = [
    {"section_id": "A", "name": "Block A, the northern stand behind the stage", "kind": "seated", "rows": 3,
     "seats_per_row": 12, "price_minor": 31000,
     "price_levels": [{"name": "Front", "rows": [1, 1], "price_minor": 41000}]},
    {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 900, "price_minor": 6500},
]  # fmt: skip
SEAT_STATUS = {"A-1-3": "reserved", "A-1-4": "sold", "A-1-5": "blocked"}
RESERVATION = {
    "reservation_id": "a" * 32, "seats": ["A-1-1", "A-3-12"], "ga": [{"section_id": "GA1", "quantity": 2}],
    "total_amount_minor_units": 85000, "currency": "EUR", "status": "pending_payment",
}  # fmt: skip
BILL = {
    "total_minor": 88275, "currency": "EUR", "lines": [{"unit_price_minor": 85000, "quantity": 1}],
    "extras": [{"kind": "discount", "name": "EARLY", "percent": "5", "amount_minor": -4250, "included": False},
               {"kind": "fee", "name": "Booking fee", "percent": None, "amount_minor": 7525, "included": False},
               {"kind": "tax", "name": "VAT", "percent": "19", "amount_minor": 14094, "included": True}],
}  # fmt: skip
TICKETS = {
    "window_s": 30,
    "tickets": [{"ticket_id": f"T{n}ABCDEFGHJK", "section_id": "A", "seat_id": "A-1-1",
                 "status": status} for n, status in enumerate(("valid", "void"))],
}  # fmt: skip


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


class MockedPage:
    """A page whose API requests are answered from `answers`, by method and path; others go to the suite."""

    def __init__(self, page: Any, suite: RunningSuite, **more: Any) -> None:
        self.page, self.url = page, suite.url
        self.event_id = put_on_sale(
            suite, name="An evening with the Northern Lights Orchestra", venue="Polar Arena",
            timezone="Asia/Tokyo", sections=SECTIONS,
            fees=[{"name": "Booking fee", "per": "ticket", "amount_minor": 500}], **more,
        )  # fmt: skip
        self.answers: dict[tuple[str, str], Any] = {}
        page.route(API_REQUEST, self._answer)
        page.route("**/e/*", self._without_facts)

    def _without_facts(self, route: Any) -> None:
        """The document without the answers that it brings: the page asks, and hears ours."""
        response = route.fetch()
        route.fulfill(response=response, body=FACTS.sub("{}", response.text()))

    def _answer(self, route: Any) -> None:
        request = route.request
        path = request.url.split("?")[0].removeprefix(self.url).replace(self.event_id, "EVENT")
        body = self.answers.get((request.method, path))
        if body is None:
            return route.continue_()
        if body == NO_ANSWER:
            return None
        status = body.get("status", 200) if str(body.get("type", "")).startswith("/problems/") else 200
        return route.fulfill(status=status, body=json.dumps(body), content_type="application/json")

    def show(self, path: str, answers: Json) -> None:
        """Loads the page afresh; `answers` maps `method path` to the body."""
        self.page.context.set_offline(False)
        self.answers = {("GET", "/events/EVENT/sections/updates"): NO_ANSWER}
        self.answer(answers)
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}{path.replace('EVENT', self.event_id)}")

    def answer(self, answers: Json) -> None:
        for request, body in answers.items():
            method, path = request.split(" ")
            self.answers[method, path] = body

    def expect(self, selector: str) -> None:
        sync_api.expect(self.page.locator(selector)).to_be_visible()

    def click(self, selector: str) -> None:
        self.page.locator(selector).click()


QUEUE = "/events/EVENT/queue"
FACTS = re.compile(r"(?<=id=.facts.>).*?(?=</script>)")
NO_PLACE = {"type": PROBLEM, "title": "No place.", "status": 404}


def frame(state: str, **more: Any) -> Json:
    return {
        "state": state, "epoch": 1, "head_seq": 4_321, "tail_seq": 123_456, "rate_per_s": 50, "live_ratio": 1,
        "message": None, "sale_starts_at": None, "poll_after_ms": 60_000, **more,
    }  # fmt: skip


def place(status: str, **more: Any) -> Json:
    return {
        "status": status, "join_seq": 123_456, "position_in_queue": 119_135, "head_seq": 4_321,
        "estimated_wait_time": 3_000, "estimated_wait_low": 2_000, "estimated_wait_high": 3_900,
        "estimate_changed": None, "poll_after_ms": 60_000, "message": None, "lane": 0, **more,
    }  # fmt: skip


def show_event(mocked: MockedPage, line: Json, own_place: Json = NO_PLACE, more: Json | None = None) -> None:
    mocked.show("/e/EVENT", {f"GET {QUEUE}": line, f"GET {QUEUE}/status": own_place, **(more or {})})


# The event page, before the fan joins


def before_the_sale(mocked: MockedPage) -> None:
    lanes = {"0": {"name": "General", "head_seq": 0}, "1": {"name": "Club", "code_required": True, "head_seq": 0}}
    show_event(mocked, frame("prequeue", sale_starts_at=in_seconds(SALE_STARTS_IN_S * 50), lanes=lanes))
    mocked.expect("#lobby-countdown")
    unknown_code = {"type": "/problems/code-unknown", "title": "This code opens no lane of this line.", "status": 422}
    mocked.answer({f"POST {QUEUE}": unknown_code})
    mocked.page.locator("#code").fill("WRONG")
    mocked.click("#join")
    mocked.expect("#code-error")


def during_the_sale(mocked: MockedPage) -> None:
    show_event(mocked, frame("open", message="Doors at eight. Trains run until two in the morning."))
    mocked.expect("#notice")


def joining(mocked: MockedPage) -> None:
    show_event(mocked, frame("open"), more={f"POST {QUEUE}": NO_ANSWER})
    mocked.click("#join")
    mocked.expect("#join[aria-busy=true]")
    mocked.page.evaluate("() => { document.getElementById('proof').hidden = false; }")


def line_full(mocked: MockedPage) -> None:
    full = {
        "type": "/problems/line-full",
        "title": "The line is as long as it may get. Come back later.",
        "status": 503,
    }
    show_event(mocked, frame("last_chance"), more={f"POST {QUEUE}": full})
    mocked.click("#join")
    mocked.expect("#trouble")


def after_the_sale(mocked: MockedPage) -> None:
    show_event(mocked, frame("sold_out"))
    mocked.expect("#lobby")


def unknown_event(mocked: MockedPage) -> None:
    problem = {"type": "/problems/unknown-event", "title": "No such event is on sale here.", "status": 404}
    mocked.show("/e/EVENT", {"GET /events/EVENT": problem})
    mocked.expect("#lost")


# In line


def waiting(mocked: MockedPage) -> None:
    changed = {"reason": "throttled", "at": in_seconds(-5)}
    show_event(mocked, frame("draining"), place("waiting", estimate_changed=changed))
    mocked.page.evaluate("() => { document.getElementById('tell-me').hidden = false; }")
    mocked.expect("#estimate-changed")


def waiting_for_the_start(mocked: MockedPage) -> None:
    show_event(mocked, frame("prequeue", sale_starts_at=in_seconds(SALE_STARTS_IN_S)), place("prequeue"))
    mocked.expect("#start-countdown")


def offline(mocked: MockedPage) -> None:
    show_event(mocked, frame("open"), place("waiting"))
    mocked.expect("#waiting")
    mocked.page.context.set_offline(True)
    mocked.expect("#line-as-of")


def reconnecting(mocked: MockedPage) -> None:
    show_event(mocked, frame("open"), place("waiting"))
    mocked.expect("#waiting")
    mocked.page.route("**/sections/updates*", lambda route: route.abort())
    mocked.page.reload()
    mocked.expect("#connection[data-state=polling], #connection[data-state=reconnecting]")
    mocked.page.unroute("**/sections/updates*")


def lottery_drawn(mocked: MockedPage) -> None:
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
    show_event(mocked, frame("open", lottery="drawn", head_seq=0), own_place, {f"GET {QUEUE}/lottery": published})
    mocked.click("#lottery-check")
    mocked.expect("#lottery-checks [data-holds=false] >> nth=0")


def lottery_closed(mocked: MockedPage) -> None:
    own_place = place("prequeue", position_in_queue=None, head_seq=None, rank=None)
    show_event(mocked, frame("prequeue", lottery="closed", sale_starts_at=in_seconds(SALE_STARTS_IN_S)), own_place)
    mocked.expect("#lottery-text")


# Called and admitted

ADMITTED = {"status": "admitted", "checkout_key": "k" * 32}


def called_while_hidden(mocked: MockedPage) -> None:
    show_event(mocked, frame("open"), place("waiting"))
    mocked.expect("#waiting")
    mocked.page.evaluate("() => Object.defineProperty(document, 'hidden', { get: () => true, configurable: true })")
    mocked.answer({f"GET {QUEUE}/status": place("ready", until=in_seconds(110))})
    mocked.page.evaluate("() => window.dispatchEvent(new Event('online'))")
    mocked.page.evaluate("() => { delete document.hidden; window.dispatchEvent(new Event('online')); }")
    mocked.page.evaluate("() => Object.defineProperty(document, 'hidden', { get: () => true, configurable: true })")
    mocked.expect("#come-in")


def claiming(mocked: MockedPage) -> None:
    show_event(mocked, frame("open"), place("ready", until=in_seconds(110)), {f"POST {QUEUE}/pass": NO_ANSWER})
    mocked.expect("#called-progress")


def show_admitted(mocked: MockedPage, more: Json | None = None, *, until_s: float = 900) -> None:
    claimed = {**ADMITTED, "expires_at": in_seconds(until_s)}
    show_event(mocked, frame("open"), place("admitted"), {f"POST {QUEUE}/pass": claimed, **(more or {})})


def choosing(mocked: MockedPage) -> None:
    show_admitted(mocked, until_s=100)
    mocked.expect("#session-soon")


def seat(row: int, number: int) -> Json:
    seat_id = f"A-{row}-{number}"
    price_minor = 41000 if row == 1 else 31000
    return {"seat_id": seat_id, "row": row, "number": number, "status": SEAT_STATUS.get(seat_id, "available"),
            "price_minor": price_minor}  # fmt: skip


def choosing_seats(mocked: MockedPage) -> None:
    seats = [seat(row, n) for row in (1, 2, 3) for n in range(1, 13)]
    seats_taken = {"type": "/problems/seats-taken", "title": "Taken.", "status": 409, "seats": ["A-2-1"]}
    show_admitted(
        mocked,
        {
            "GET /events/EVENT/sections/A/seats": {"seats": seats, "total_seats": len(seats)},
            "POST /events/EVENT/reservations": seats_taken,
        },
    )
    mocked.click("#section-GA1 .step >> nth=1")
    mocked.click("#section-A button")
    for n in (0, 12, 13):
        mocked.click(f"#seats .seat >> nth={n}")
    sync_api.expect(mocked.page.locator("#basket-total")).not_to_be_empty()
    mocked.click("#hold")
    mocked.expect("#trouble")


def held(mocked: MockedPage) -> None:
    bad_code = {"type": "/problems/promo-code-not-valid", "title": "This promo code is not valid.", "status": 422}
    hold = {**RESERVATION, "reserved_until": in_seconds(55)}
    show_admitted(mocked, {"POST /events/EVENT/reservations": hold, "POST /orders/quote": BILL})
    mocked.click("#best-find")
    mocked.expect("#bill")
    mocked.expect("#more-time")
    mocked.answer({"POST /orders/quote": bad_code})
    mocked.page.locator("#promo").fill("WRONG")
    mocked.click("#promo-apply")
    sync_api.expect(mocked.page.locator("#promo-note")).not_to_be_empty()


def paying(mocked: MockedPage, answer: Any = NO_ANSWER, shows: str = "#pay[aria-busy=true]") -> None:
    held(mocked)
    mocked.answer({"POST /orders": answer})
    mocked.page.locator("#name").fill("Ada Lovelace")
    mocked.page.locator("#email").fill("ada@example.org")
    mocked.click("#pay")
    mocked.expect(shows)


def ended(status: str, why: str | None = None) -> Callable[[MockedPage], None]:
    def show(mocked: MockedPage) -> None:
        show_event(mocked, frame("open"), place(status, why=why))
        mocked.expect("#ended")

    return show


# The order page


def order(status: str, *, shows: str = "#order", **more: Any) -> Callable[[MockedPage], None]:
    def show(mocked: MockedPage) -> None:
        body = {
            "reference": REFERENCE, "event_id": mocked.event_id, "status": status, "progress": None,
            "total_minor": 88275, "currency": "EUR", "charged_minor": 88275, "refunded_minor": 0, "refunding_minor": 0,
            "extras": BILL["extras"], "expires_at": in_seconds(200), "confirmed_at": None, "fulfilled_at": None,
            "cancel_asked": False, "extended": False, "oversold": False, "end_reason": None, "attempt": None,
            "customer": {"name": "Ada", "email": "ada@example.org"}, **more,
        }  # fmt: skip
        body["lines"] = [{"seat_id": "A-1-1", "unit_price_minor": 41000, "quantity": 1},
                         {"section_id": "GA1", "unit_price_minor": 44000, "quantity": 2}]  # fmt: skip
        get_order = f"GET /orders/{REFERENCE}"
        code = mocked.page.request.get(f"{mocked.url}/favicon.ico").text()
        mocked.page.route("**/tickets/*.svg", lambda route: route.fulfill(body=code, content_type="image/svg+xml"))
        answers = {get_order: body, f"{get_order}/updates": NO_ANSWER, f"{get_order}/tickets": TICKETS}
        mocked.show(f"/o/{REFERENCE}", answers)
        mocked.expect(shows)
        sync_api.expect(mocked.page.locator("#tickets li").first).to_be_visible()

    return show


def order_without_a_key(mocked: MockedPage) -> None:
    mocked.show(f"/o/{REFERENCE}", {f"GET /orders/{REFERENCE}": NO_PLACE})
    mocked.expect("#lost")


def order_declined(mocked: MockedPage) -> None:
    order(
        "pending", shows="#retry", progress="your-turn", attempt={"n": 1, "status": "failed", "reason": "card_declined"}
    )(mocked)
    mocked.answer({f"POST /orders/{REFERENCE}/payments": NO_ANSWER})
    mocked.click("#pay-again")
    mocked.expect("#pay-again[aria-busy=true]")


def catalogue(mocked: MockedPage) -> None:
    mocked.show("/", {})
    mocked.expect("#events .state[data-state=open] >> nth=0")


def page_not_found(mocked: MockedPage) -> None:
    mocked.show("/nowhere", {})
    mocked.expect("h1")


CONFIRMED = {"confirmed_at": in_seconds(-60), "fulfilled_at": in_seconds(-50)}
DOUBTFUL = {"type": "/problems/email-likely-mistyped", "title": "Mistyped.", "status": 409, "suggestion": "a@gmail.com"}
ON_PROVIDER_PAGE = {"n": 1, "status": "requires_action", "reason": None, "checkout_url": "https://pay.example/"}
STATES: dict[str, Callable[[MockedPage], None]] = {
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
    "paying": paying,
    "address in doubt": lambda mocked: paying(mocked, DOUBTFUL, "#email-meant"),
    "session ended": ended("expired", "session"),
    "completed": ended("completed"),
    "order processing": order("pending", shows="#progress", progress="paying"),
    "order on the provider's page": order("pending", shows="#act", progress="your-turn", attempt=ON_PROVIDER_PAGE),
    "order declined": order_declined,
    "order cancelling": order("pending", shows="#progress", progress="cancelling", cancel_asked=True),
    "order confirmed": order("confirmed", shows="#papers", **CONFIRMED),
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
