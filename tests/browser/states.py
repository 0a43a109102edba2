"""Every state the fan pages can show, by the pages' own code: the test answers for line, place, hold and order;
catalogue, prices and stock come from the suite.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from playwright import sync_api

from tests.browser.steps import put_on_sale
from tests.support.running.suite import RunningSuite

ASKED = re.compile(r"//[^/]+/(events|orders|payments)(/|\?|$)")
REFERENCE = "ABCDEFGH2345"
SILENCE = "silence"
PROBLEM = "/problems/a-test"
LATER_S = 3600
SECTIONS = [
    {"section_id": "A", "name": "Block A, the northern stand behind the stage", "kind": "seated", "rows": 3,
     "seats_per_row": 12, "price_minor": 31000,
     "price_levels": [{"name": "Front", "rows": [1, 1], "price_minor": 41000}]},
    {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 900, "price_minor": 6500},
]  # fmt: skip
TAKEN = {"A-1-3": "reserved", "A-1-4": "sold", "A-1-5": "blocked"}
HELD = {
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
    "tickets": [{"ticket_id": f"T{n}ABCDEFGHJK", "place": "Block A, the northern stand behind the stage, row 1, seat 1",
                 "status": status} for n, status in enumerate(("valid", "void"))],
}  # fmt: skip


def later(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


class Stage:
    """One page, and what it is told."""

    def __init__(self, page: Any, suite: RunningSuite) -> None:
        self.page, self.url = page, suite.url
        self.event_id = put_on_sale(
            suite, name="An evening with the Northern Lights Orchestra", venue="Polar Arena",
            timezone="Asia/Tokyo", sections=SECTIONS,
            fees=[{"name": "Booking fee", "per": "ticket", "amount_minor": 500}],
        )  # fmt: skip
        self.said: dict[tuple[str, str], Any] = {}
        page.route(ASKED, self._answer)

    def _answer(self, route: Any) -> None:
        asked = route.request
        path = asked.url.split("?")[0].removeprefix(self.url).replace(self.event_id, "EVENT")
        body = self.said.get((asked.method, path))
        if body is None:
            return route.continue_()
        if body == SILENCE:
            return None
        status = body.get("status", 200) if str(body.get("type", "")).startswith("/problems/") else 200
        return route.fulfill(status=status, body=json.dumps(body), content_type="application/json")

    def show(self, path: str, said: dict[str, Any]) -> None:
        """A fresh page; `said` as `method path` to its body."""
        self.page.context.set_offline(False)
        self.said = {("GET", "/events/EVENT/sections/updates"): SILENCE}
        self.tell(said)
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}{path.replace('EVENT', self.event_id)}")

    def tell(self, said: dict[str, Any]) -> None:
        for asked, body in said.items():
            method, path = asked.split(" ")
            self.said[method, path] = body

    def sees(self, selector: str) -> Any:
        part = self.page.locator(selector)
        sync_api.expect(part).to_be_visible()
        return part

    def press(self, selector: str) -> None:
        self.page.locator(selector).click()


QUEUE = "/events/EVENT/queue"
NOBODY = {"type": PROBLEM, "title": "No place.", "status": 404}


def frame(state: str, **more: Any) -> dict[str, Any]:
    return {
        "state": state, "epoch": 1, "head_seq": 4_321, "tail_seq": 123_456, "rate_per_s": 50, "live_ratio": 1,
        "message": None, "sale_starts_at": None, "poll_after_ms": 60_000, **more,
    }  # fmt: skip


def place(status: str, **more: Any) -> dict[str, Any]:
    return {
        "status": status, "join_seq": 123_456, "position_in_queue": 119_135, "head_seq": 4_321,
        "estimated_wait_time": 3_000, "estimated_wait_low": 2_000, "estimated_wait_high": 3_900,
        "estimate_changed": None, "poll_after_ms": 60_000, "message": None, "lane": 0, **more,
    }  # fmt: skip


def at_event(
    stage: Stage, line: dict[str, Any], mine: dict[str, Any] | None = None, more: dict[str, Any] | None = None
) -> None:
    stage.show("/e/EVENT", {f"GET {QUEUE}": line, f"GET {QUEUE}/status": mine or NOBODY, **(more or {})})


# The event page, before anybody joins


def before_the_sale(stage: Stage) -> None:
    lanes = {"0": {"name": "General", "head_seq": 0}, "1": {"name": "Club", "code_required": True, "head_seq": 0}}
    at_event(stage, frame("prequeue", sale_starts_at=later(LATER_S * 50), lanes=lanes))
    stage.sees("#lobby-countdown")
    wrong = {"type": "/problems/code-unknown", "title": "This code opens no lane of this line.", "status": 422}
    stage.tell({f"POST {QUEUE}": wrong})
    stage.page.locator("#code").fill("WRONG")
    stage.press("#join")
    stage.sees("#code-error")


def during_the_sale(stage: Stage) -> None:
    at_event(stage, frame("open", message="Doors at eight. Trains run until two in the morning."))
    stage.sees("#notice")


def joining(stage: Stage) -> None:
    at_event(stage, frame("open"), more={f"POST {QUEUE}": SILENCE})
    stage.press("#join")
    stage.sees("#join[aria-busy=true]")
    stage.page.evaluate("() => { document.getElementById('proof').hidden = false; }")


def refused_at_the_door(stage: Stage) -> None:
    full = {
        "type": "/problems/line-full",
        "title": "The line is as long as it may get. Come back later.",
        "status": 503,
    }
    at_event(stage, frame("last_chance"), more={f"POST {QUEUE}": full})
    stage.press("#join")
    stage.sees("#trouble")


def after_the_sale(stage: Stage) -> None:
    at_event(stage, frame("sold_out"))
    stage.sees("#lobby")


def not_loaded(stage: Stage) -> None:
    gone = {"type": "/problems/unknown-event", "title": "No such event is on sale here.", "status": 404}
    stage.show("/e/EVENT", {"GET /events/EVENT": gone})
    stage.sees("#lost")


# In line


def waiting(stage: Stage) -> None:
    changed = {"reason": "throttled", "at": later(-5)}
    at_event(stage, frame("draining"), place("waiting", estimate_changed=changed))
    stage.page.evaluate("() => { document.getElementById('tell-me').hidden = false; }")
    stage.sees("#estimate-changed")


def waiting_for_the_start(stage: Stage) -> None:
    at_event(stage, frame("prequeue", sale_starts_at=later(LATER_S)), place("prequeue"))
    stage.sees("#start-countdown")


def offline(stage: Stage) -> None:
    at_event(stage, frame("open"), place("waiting"))
    stage.sees("#waiting")
    stage.page.context.set_offline(True)
    stage.sees("#line-as-of")


def reconnecting(stage: Stage) -> None:
    at_event(stage, frame("open"), place("waiting"))
    stage.sees("#waiting")
    stage.page.route("**/sections/updates", lambda route: route.abort())
    stage.page.reload()
    stage.sees("#connection[data-state=polling], #connection[data-state=reconnecting]")
    stage.page.unroute("**/sections/updates")


def lottery(stage: Stage, drawn: bool = True) -> None:
    value = {"what": "the closing number of an index", "known_at": later(-60)}
    told = {
        "algorithm": "onsale-lottery-1", "event_id": "EVENT", "epoch": 1, "stage": "drawn",
        "queue_opens_at": later(-900), "committed_at": later(-999), "closed_at": later(-300),
        "counted_at": later(-200), "drawn_at": later(-30),
        "rules": {"entry_closes_at": later(-300), "public_value": value}, "commitment": "ab" * 32, "seed": "cd" * 32,
        "public_value": "24331.09", "entrants": {"0": {"n": 50, "hash": "ef" * 32}},
    }  # fmt: skip
    mine = place("waiting", join_seq=7, rank=3, position_in_queue=3, head_seq=0)
    at_event(stage, frame("open", lottery="drawn", head_seq=0), mine, {f"GET {QUEUE}/lottery": told})
    stage.press("#lottery-check")
    stage.sees("#lottery-checks [data-holds=false] >> nth=0")


def in_the_lottery(stage: Stage) -> None:
    mine = place("prequeue", position_in_queue=None, head_seq=None, rank=None)
    at_event(stage, frame("prequeue", lottery="closed", sale_starts_at=later(LATER_S)), mine)
    stage.sees("#lottery-text")


# Called, and inside

COMES_IN = {"status": "admitted", "checkout_key": "k" * 32}


def called_while_away(stage: Stage) -> None:
    at_event(stage, frame("open"), place("waiting"))
    stage.sees("#waiting")
    stage.page.evaluate("() => Object.defineProperty(document, 'hidden', { get: () => true, configurable: true })")
    stage.tell({f"GET {QUEUE}/status": place("ready", until=later(110))})
    stage.page.evaluate("() => window.dispatchEvent(new Event('online'))")
    stage.page.evaluate("() => { delete document.hidden; window.dispatchEvent(new Event('online')); }")
    stage.page.evaluate("() => Object.defineProperty(document, 'hidden', { get: () => true, configurable: true })")
    stage.sees("#come-in")


def coming_in(stage: Stage) -> None:
    at_event(stage, frame("open"), place("ready", until=later(110)), {f"POST {QUEUE}/pass": SILENCE})
    stage.sees("#called-progress")


def inside(stage: Stage, more: dict[str, Any] | None = None, *, until_s: float = 900) -> None:
    come = {**COMES_IN, "expires_at": later(until_s)}
    at_event(stage, frame("open"), place("admitted"), {f"POST {QUEUE}/pass": come, **(more or {})})


def choosing(stage: Stage) -> None:
    inside(stage, until_s=100)
    stage.sees("#session-soon")


def seat(row: int, number: int) -> dict[str, Any]:
    seat_id = f"A-{row}-{number}"
    price_minor = 41000 if row == 1 else 31000
    return {"seat_id": seat_id, "row": row, "number": number, "status": TAKEN.get(seat_id, "available"),
            "price_minor": price_minor}  # fmt: skip


def choosing_seats(stage: Stage) -> None:
    seats = [seat(row, n) for row in (1, 2, 3) for n in range(1, 13)]
    faster = {"type": "/problems/seats-taken", "title": "Taken.", "status": 409, "seats": ["A-2-1"]}
    inside(
        stage,
        {
            "GET /events/EVENT/sections/A/seats": {"seats": seats, "total_seats": len(seats)},
            "POST /events/EVENT/reservations": faster,
        },
    )
    stage.press("#section-GA1 .step >> nth=1")
    stage.press("#section-A button")
    for n in (0, 12, 13):
        stage.press(f"#seats .seat >> nth={n}")
    sync_api.expect(stage.page.locator("#basket-total")).not_to_be_empty()
    stage.press("#hold")
    stage.sees("#trouble")


def held(stage: Stage) -> None:
    bad_code = {"type": "/problems/promo-code-not-valid", "title": "This promo code is not valid.", "status": 422}
    hold = {**HELD, "reserved_until": later(55)}
    inside(stage, {"POST /events/EVENT/reservations": hold, "POST /orders/quote": BILL})
    stage.press("#best-find")
    stage.sees("#bill")
    stage.sees("#more-time")
    stage.tell({"POST /orders/quote": bad_code})
    stage.page.locator("#promo").fill("WRONG")
    stage.press("#promo-apply")
    sync_api.expect(stage.page.locator("#promo-note")).to_contain_text("not valid")


def paying(stage: Stage) -> None:
    held(stage)
    stage.tell({"POST /orders": SILENCE})
    stage.page.locator("#name").fill("Ada Lovelace")
    stage.page.locator("#email").fill("ada@example.org")
    stage.press("#pay")
    stage.sees("#pay[aria-busy=true]")


def ended(reason: str, why: str | None = None) -> Callable[[Stage], None]:
    def show(stage: Stage) -> None:
        at_event(stage, frame("open"), place(reason, why=why))
        stage.sees("#ended")

    return show


# The order page


def order(status: str, *, then: str = "#order", **more: Any) -> Callable[[Stage], None]:
    def show(stage: Stage) -> None:
        body = {
            "reference": REFERENCE, "event_id": stage.event_id, "status": status, "progress": None,
            "total_minor": 88275, "currency": "EUR", "charged_minor": 88275, "refunded_minor": 0, "refunding_minor": 0,
            "extras": BILL["extras"], "expires_at": later(200), "confirmed_at": None, "fulfilled_at": None,
            "cancel_asked": False, "oversold": False, "end_reason": None, "attempt": None, **more,
        }  # fmt: skip
        body["lines"] = [{"seat_id": "A-1-1", "unit_price_minor": 41000, "quantity": 1},
                         {"section_id": "GA1", "unit_price_minor": 44000, "quantity": 2}]  # fmt: skip
        at = f"GET /orders/{REFERENCE}"
        code = stage.page.request.get(f"{stage.url}/static/icon.svg").text()
        stage.page.route("**/tickets/*.svg", lambda route: route.fulfill(body=code, content_type="image/svg+xml"))
        said = {at: body, f"{at}/updates": SILENCE, f"{at}/tickets": TICKETS}
        stage.show(f"/o/{REFERENCE}", said)
        stage.sees(then)
        sync_api.expect(stage.page.locator("#tickets li").first).to_be_visible()

    return show


def no_key(stage: Stage) -> None:
    stage.show(f"/o/{REFERENCE}", {f"GET /orders/{REFERENCE}": NOBODY})
    stage.sees("#lost")


def trying_again(stage: Stage) -> None:
    order(
        "pending", then="#retry", progress="your-turn", attempt={"n": 1, "status": "failed", "reason": "card_declined"}
    )(stage)
    stage.tell({f"POST /orders/{REFERENCE}/payments": SILENCE})
    stage.press("#pay-again")
    stage.sees("#pay-again[aria-busy=true]")


def catalogue(stage: Stage) -> None:
    stage.show("/", {})
    stage.sees("#events .state[data-state=open] >> nth=0")


def refusal(stage: Stage) -> None:
    stage.show("/nowhere", {})
    stage.sees("h1")


BOUGHT = {"confirmed_at": later(-60), "fulfilled_at": later(-50)}
ACTS = {"n": 1, "status": "requires_action", "reason": None, "checkout_url": "https://pay.example/"}
STATES: dict[str, Callable[[Stage], None]] = {
    "catalogue": catalogue,
    "refusal": refusal,
    "before": before_the_sale,
    "during": during_the_sale,
    "joining": joining,
    "refused": refused_at_the_door,
    "after": after_the_sale,
    "not loaded": not_loaded,
    "waiting": waiting,
    "waiting for the start": waiting_for_the_start,
    "offline": offline,
    "reconnecting": reconnecting,
    "lottery": lottery,
    "in the lottery": in_the_lottery,
    "called while away": called_while_away,
    "coming in": coming_in,
    "choosing": choosing,
    "choosing seats": choosing_seats,
    "held": held,
    "paying": paying,
    "session ended": ended("expired", "session"),
    "completed": ended("completed"),
    "order processing": order("pending", then="#progress", progress="paying"),
    "order acts": order("pending", then="#act", progress="your-turn", attempt=ACTS),
    "order declined": trying_again,
    "order cancelling": order("pending", then="#progress", progress="cancelling", cancel_asked=True),
    "order confirmed": order("confirmed", then="#papers", **BOUGHT),
    "order cancelled": order("cancelled", then="#again"),
    "order expired": order("expired", then="#again"),
    "order in review": order("review"),
    "order partly refunded": order("partially_refunded", then="#refunded-line", refunded_minor=900, **BOUGHT),
    "order refunded": order("refunded", then="#refunding-line", refunding_minor=900, oversold=True, **BOUGHT),
    "order without a key": no_key,
}
