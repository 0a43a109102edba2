"""What an HTTP answer acknowledges, by one table of routes.

An acknowledgement is a statement that the sale must keep: a place, a hold, an order, a refund. Every operation of the
published API that changes something stands in `RECORDED` or, with the reason, in `NOTHING_ACKNOWLEDGED`; a test
compares both with the OpenAPI documents.

One request and its whole answer, and what their credentials say of the fan. Nothing here is verified.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple


class Exchange(NamedTuple):
    """One request and its answer, by the clock of the process that sent it (ms since 1970). Status 0: none came."""

    method: str
    path: str  # without the query
    query: str
    headers: dict[str, str]  # of the request, names in lower case
    request: bytes
    status: int
    body: bytes
    sent_ms: int
    at_ms: int

    @property
    def bearer(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    @property
    def key(self) -> str | None:
        """A digest of the idempotency key: the key itself opens what it created."""
        given = self.headers.get("idempotency-key")
        return digest(given.encode()) if given else None


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def document(content: bytes) -> dict[str, Any]:
    """The JSON object that is written there, an empty one for anything else."""
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def claims(token: str) -> dict[str, Any]:
    """The payload of a token of three parts, without any verification; empty if it has none."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        return document(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}


def fan_of(token: str) -> dict[str, str]:
    """Who shows this token: the holder of a place or pass, or the user id of a signed-in user's JWT."""
    payload = claims(token)
    if not isinstance(payload.get("sub"), str):
        return {}
    return {"fan": payload["sub"]} if "seq" in payload else {"user": payload["sub"]}


Facts = dict[str, Any]
Recorder = Callable[[Exchange, dict[str, str]], list[Facts]]

RESERVATION = (
    "reservation_id", "seats", "ga", "total_amount_minor_units", "currency", "status",
)  # fmt: skip
ORDER = (
    "reference", "event_id", "reservation_id", "status", "total_minor", "currency", "charged_minor", "refunded_minor",
    "refunding_minor", "end_reason", "cancel_asked",
)  # fmt: skip
ESTIMATE = ("estimated_wait_time", "estimated_wait_low", "estimated_wait_high")
PLACE = ("join_seq", "status", "position_in_queue", "rank", *ESTIMATE)
ROOM = ("state", "head_seq", "poll_after_ms", "estimate_changed", "until", "why")


def _joined(exchange: Exchange, _: dict[str, str]) -> list[Facts]:
    place = document(exchange.body)
    token = place.get("queue_token") or exchange.bearer
    return [{"what": "joined", **_some(place, *PLACE, "lane", "epoch"), **_keyed(exchange), **fan_of(token)}]


def _place(exchange: Exchange, _: dict[str, str]) -> list[Facts]:
    """`called` once the place may be claimed, `position` otherwise."""
    place, token = document(exchange.body), claims(exchange.bearer)
    where = {"lane": token.get("lan"), "epoch": token.get("epo")} if "seq" in token else {}
    what = "called" if place.get("status") == "ready" else "position"
    return [{"what": what, **_some(place, *PLACE, *ROOM), **where}]


def _left(exchange: Exchange, _: dict[str, str]) -> list[Facts]:
    token = claims(exchange.bearer)
    return [{"what": "left", "join_seq": token.get("seq"), "lane": token.get("lan"), "epoch": token.get("epo")}]


def _session(what: str) -> Recorder:
    def record(exchange: Exchange, _: dict[str, str]) -> list[Facts]:
        answer = document(exchange.body)
        admission = claims(answer.get("pass", ""))
        return [{
            "what": what, "join_seq": admission.get("seq"), "lane": admission.get("lan"), "epoch": admission.get("epo"),
            "jti": admission.get("jti"), "expires_at_ms": admission.get("exp", 0) * 1000, "fan": admission.get("sub"),
            "pass": digest(str(answer.get("pass")).encode()),
        }]  # fmt: skip

    return record


def _slot_given_back(exchange: Exchange, _: dict[str, str]) -> list[Facts]:
    admission, answer = claims(exchange.bearer), document(exchange.body)
    place = {"join_seq": admission.get("seq"), "lane": admission.get("lan"), "epoch": admission.get("epo")}
    return [{"what": "slot_given_back", "event_id": admission.get("aud"), **place, "status": answer.get("status")}]


def _reservation(what: str) -> Recorder:
    def record(exchange: Exchange, _: dict[str, str]) -> list[Facts]:
        return [{"what": what, **_reservation_facts(document(exchange.body)), **_keyed(exchange)}]

    return record


def _reservation_facts(answer: Facts) -> Facts:
    """With each ticket's price type and price, if the event has price types."""
    names = ("section_id", "seat_id", "quantity", "type_id", "unit_price_minor")
    tickets = [_some(each, *names) for each in answer.get("tickets", []) if each.get("type_id")]
    return _some(answer, *RESERVATION) | {"until_ms": _ms(answer.get("reserved_until")), "tickets": tickets or None}


def _released(_: Exchange, names: dict[str, str]) -> list[Facts]:
    return [{"what": "released", "reservation_id": names["reservation_id"]}]


def _ordered(exchange: Exchange, names: dict[str, str]) -> list[Facts]:
    """An order as accepted: its price and hold are those of the request, which the answer acknowledges."""
    request, answer = document(exchange.request), document(exchange.body)
    what = "payment_started" if "reference" in names else "ordered"
    facts = {
        "what": what, **_some(answer, "reference", "status"), **_some(request, "reservation_id", "currency"),
        "expires_at_ms": _ms(answer.get("expires_at")), "event_id": claims(exchange.bearer).get("aud"),
    }  # fmt: skip
    if "expected_total_minor" in request:
        facts["total_minor"] = request["expected_total_minor"]
    return [facts | _keyed(exchange)]


def _order(what: str) -> Recorder:
    def record(exchange: Exchange, _: dict[str, str]) -> list[Facts]:
        return [_order_facts(what, document(exchange.body)) | _keyed(exchange)]

    return record


def _order_frame(exchange: Exchange, _: dict[str, str]) -> list[Facts]:
    """A frame of the order's stream; a heartbeat says nothing. Frames may be older than an answer meanwhile."""
    answer = document(exchange.body)
    return [_order_facts("order_frame", answer)] if "reference" in answer else []


def _orders(exchange: Exchange, _: dict[str, str]) -> list[Facts]:
    return [_order_facts("order", each) for each in document(exchange.body).get("orders", [])]


def _order_facts(what: str, answer: Facts) -> Facts:
    return {"what": what, **_some(answer, *ORDER), "expires_at_ms": _ms(answer.get("expires_at"))}


def _tickets(exchange: Exchange, names: dict[str, str]) -> list[Facts]:
    answer = document(exchange.body)
    tickets = [_some(each, "ticket_id", "section_id", "seat_id", "status") for each in answer.get("tickets", [])]
    event_id = answer.get("event", {}).get("event_id")
    return [{"what": "tickets", "event_id": event_id, "reference": names["reference"], "tickets": tickets}]


def _event_refund(exchange: Exchange, names: dict[str, str]) -> list[Facts]:
    facts = _some(document(exchange.body), "status", "return_to_sale")
    return [{"what": "event_refund_requested", "event_id": names["event_id"], **facts}]


def _refund_requested(exchange: Exchange, _: dict[str, str]) -> list[Facts]:
    wanted = _some(document(exchange.request), "amount_minor", "tickets", "return_to_sale")
    return [_order_facts("refund_requested", document(exchange.body)) | {"wanted": wanted} | _keyed(exchange)]


def _resolved(exchange: Exchange, _: dict[str, str]) -> list[Facts]:
    decision = _some(document(exchange.request), "decision")
    return [_order_facts("resolved", document(exchange.body)) | decision]


def _operators(what: str, *names_of_facts: str) -> Recorder:
    def record(exchange: Exchange, names: dict[str, str]) -> list[Facts]:
        return [{"what": what, **names, **_some(document(exchange.body), *names_of_facts)}]

    return record


RECORDED: dict[tuple[str, str], Recorder] = {
    ("POST", "/events/{event_id}/queue"): _joined,
    ("GET", "/events/{event_id}/queue/status"): _place,
    ("DELETE", "/events/{event_id}/queue"): _left,
    ("POST", "/events/{event_id}/queue/pass"): _session("claimed"),
    ("POST", "/events/{event_id}/queue/pass/extend"): _session("session_extended"),
    ("POST", "/gate/release"): _slot_given_back,
    ("POST", "/events/{event_id}/reservations"): _reservation("held"),
    ("GET", "/events/{event_id}/reservations/{reservation_id}"): _reservation("reservation"),
    ("POST", "/events/{event_id}/reservations/{reservation_id}/extend"): _reservation("hold_extended"),
    ("POST", "/events/{event_id}/reservations/{reservation_id}/keep"): _reservation("kept"),
    ("POST", "/events/{event_id}/reservations/{reservation_id}/types"): _reservation("types_changed"),
    ("DELETE", "/events/{event_id}/reservations/{reservation_id}"): _released,
    ("POST", "/orders"): _ordered,
    ("GET", "/orders"): _orders,
    ("GET", "/orders/{reference}"): _order("order"),
    ("GET", "/orders/{reference}/updates"): _order_frame,
    ("POST", "/orders/{reference}/cancel"): _order("cancel_requested"),
    ("POST", "/orders/{reference}/extend"): _order("order_extended"),
    ("POST", "/orders/{reference}/email"): _order("order"),
    ("POST", "/orders/{reference}/names"): _order("order"),
    ("POST", "/orders/{reference}/payments"): _ordered,
    ("GET", "/orders/{reference}/tickets"): _tickets,
    ("POST", "/admin/orders/{reference}/refund"): _refund_requested,
    ("POST", "/admin/orders/{reference}/cancel"): _order("cancel_requested"),
    ("POST", "/admin/orders/{reference}/resolve"): _resolved,
    ("POST", "/admin/orders/{reference}/names"): _order("order"),
    ("POST", "/admin/orders/events/{event_id}/refund"): _event_refund,
    ("POST", "/admin/inventory/reservations/{reservation_id}/release"): _operators("released", "reservation_id"),
    ("POST", "/admin/inventory/events/{event_id}/release-all"): _operators("all_released", "released"),
    ("POST", "/admin/events/{event_id}/room/admit"): _operators("admitted", "called"),
    ("POST", "/admin/events/{event_id}/room/reset"): _operators("room_reset", "epoch"),
}

NOTHING_ACKNOWLEDGED: dict[tuple[str, str], str] = {
    ("POST", "/events/{event_id}/queue/handover"): "A link that is good for seconds; the pass behind it is recorded.",
    ("POST", "/orders/quote"): "A price that the order may no longer have; the order is recorded.",
    ("POST", "/orders/{reference}/key"): "A cookie for the browser; nothing is stored.",
    ("POST", "/reminders"): "A mail that is sent if the hold still stands then.",
    ("POST", "/orders/links"): "Answered alike whether there are orders or not.",
    ("POST", "/reminders/stop/{token}"): "No more mails; no place, hold, order or money.",
    ("POST", "/webhooks/{provider}"): "Told to the provider, whose books are compared at the end.",
    ("POST", "/admin/inventory/events/{event_id}/accessible/release"): "Offers places to more fans; nobody loses one.",
    ("POST", "/admin/orders/{reference}/retry"): "Wakes a worker; the order's next state is recorded.",
    ("POST", "/admin/orders/events/{event_id}/refund/pause"): "Delays refunds that are requested already.",
    ("POST", "/admin/orders/events/{event_id}/refund/resume"): "Continues refunds that are requested already.",
}


def facts_of(exchange: Exchange) -> list[Facts]:
    """What this answer acknowledges, a line each; nothing unless it is a success of a recorded route.

    A request that would have changed something and had no answer, or that of a failure, is `unanswered`: it may have
    been executed.
    """
    for method, template, pattern, record in _patterns():
        if method == exchange.method and (found := pattern.fullmatch(exchange.path)):
            names = found.groupdict()
            common = {"event_id": names.get("event_id"), **fan_of(exchange.bearer)}
            if 200 <= exchange.status < 300:
                return [_without_nothing(common | _without_nothing(facts)) for facts in record(exchange, names)]
            if method != "GET" and (exchange.status == 0 or exchange.status >= 500):
                line = {"what": "unanswered", "of": f"{method} {template}", "status": exchange.status, **names}
                line |= _some(document(exchange.request), "reservation_id")
                return [_without_nothing(common | line | _keyed(exchange))]
            return []
    return []


@cache
def _patterns() -> list[tuple[str, str, re.Pattern[str], Recorder]]:
    return [
        (method, path, re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path)), record)
        for (method, path), record in RECORDED.items()
    ]


def _some(document: Facts, *names: str) -> Facts:
    return {name: document[name] for name in names if document.get(name) is not None}


def _without_nothing(facts: Facts) -> Facts:
    return {name: value for name, value in facts.items() if value is not None}


def _keyed(exchange: Exchange) -> Facts:
    """Key and body of the request: the same key and body must have the same answer."""
    return {"key": exchange.key, "request": digest(exchange.request)} if exchange.key else {}


def _ms(time: str | None) -> int | None:
    return int(datetime.fromisoformat(time).timestamp() * 1000) if time else None
