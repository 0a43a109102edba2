"""Events of the event log and the outboxes, and the webhooks made of them."""

import json
from typing import Any, get_args

from features.webhooks.schemas import WebhookKind
from shared.contracts.frames import Event
from tools.reference import model_fields
from tools.reference.markdown import Section, code, codes, page

AT_MS, AT = 1_795_273_200_250, "2026-11-21T15:00:00.250Z"
TEXT = """A change of places, reservations or orders is an event in its service's outbox, written in the transaction
that makes it true, and from there in the event log, at least once and in order for each service and on-sale ([the
event log](../operate/event-log.md)). Orders' events also go to your systems as webhooks
([webhooks](../use/webhooks.md)). New types and fields may be added; no name, address or token is ever in one."""
ORDER = ("reference", "event_id", "status", "holder", "lane", "join_seq", "reservation_id", "total_minor", "currency")
HELD = ("reservation_id", "version", "status", "holder", "total_minor", "seats", "ga")
FREED = ("reservation_id", "version", "status", "seats", "ga")
PLACES = ("epoch", "places")
TYPES: dict[str, tuple[str, tuple[str, ...]]] = {
    "order.created": ("A purchase was accepted.", ORDER),
    "order.confirmed": ("The places are sold. It is paid and its tickets are issued, unless `ORDERS_CAPTURE` is "
                        "`after_confirm`.", ORDER),
    "order.fulfilled": ("Its money was captured after it was confirmed: its tickets are issued.", ORDER),
    "order.cancelled": ("It ended unpaid; `status` is `cancelled` or `expired`.", (*ORDER, "reason")),
    "order.refunded": ("Money went back; `status` is `refunded` or `partially_refunded`.",
                       (*ORDER, "amount_minor", "refunded_minor", "charged_minor", "reason")),
    "order.renamed": ("Names on its `tickets` changed, or its buyer's if there are none; the tickets stay the same.",
                      (*ORDER, "tickets")),
    "reservation.created": ("Places are held.", HELD),
    "reservation.given-back": ("A part of a hold was released; the rest stays held.",
                               ("reservation_id", "version", "status", "total_minor", "seats", "ga")),
    "reservation.repriced": ("The price types of held tickets were changed; `types` says how many are of which.",
                             ("reservation_id", "version", "status", "total_minor", "seats", "ga", "types")),
    "reservation.confirmed": ("Places are sold.", ("reservation_id", "version", "status", "order_reference",
                                                   "total_minor", "seats", "ga")),
    "reservation.expired": ("A hold ended; its places are free.", FREED),
    "reservation.cancelled": ("A hold was released; its places are free.", FREED),
    "reservation.returned": ("Sold tickets were returned.", ("reservation_id", "version", "status", "reason",
                                                             "order_reference", "seats", "ga")),
    "place.joined": ("Fans joined the line.", ("epoch", "lane", "join_seqs")),
    "place.called": ("They were called.", PLACES),
    "place.claimed": ("They came and took their pass.", PLACES),
    "place.completed": ("They bought, and their place ended.", PLACES),
    "place.expired": ("Their time was over.", PLACES),
    "place.left": ("They left.", PLACES),
}  # fmt: skip
ENVELOPE = {
    "id": "Identifies the event; the same however often it is delivered.", "type": "One of those below.",
    "event_id": "The on-sale.", "occurred_at_ms": "When, in milliseconds since the epoch.",
    "actor": "`fans`, a holder, `orders` or `system`.",
    "aggregate": "What changed: `order:REFERENCE`, `stock`, or `line/EPOCH`.",
    "version": "Rises with each event of an order; a lower one is older. Of reservations it is in `after`.",
    "before": "For an order its status before.", "after": "What is true now, as below.",
}  # fmt: skip
FIELDS = {
    "reference": "The order.", "event_id": "The on-sale.", "status": "Of the order or the reservation.",
    "holder": "The fan, as a pseudonym.", "lane": "Lane of the place.", "join_seq": "Number of the place.",
    "reservation_id": "The reservation.", "total_minor": "Total in the currency's smallest unit.",
    "currency": "ISO 4217.", "reason": "Why.", "amount_minor": "What went back just now.",
    "refunded_minor": "What went back in all.", "charged_minor": "What was ever charged.",
    "version": "Of the reservation; rises with each event of it.", "order_reference": "The order.",
    "tickets": "Ticket ids.",
    "returned": "Of each line of the order, in their order, how many tickets went back or are going back.",
    "seats": "Seat ids.", "ga": "A list of `section_id` and `quantity`.", "epoch": "Of the waiting room.",
    "places": "A list of `[lane, join_seq]`.", "join_seqs": "Runs of numbers: `[first, last]`.",
}  # fmt: skip
EXAMPLE_AFTER = {
    "reference": "7QK2M9TZ4HXA", "event_id": "arena-2026", "status": "confirmed", "holder": "a:Zk3…", "lane": 0,
    "join_seq": 4711, "reservation_id": "…", "total_minor": 6800, "currency": "EUR",
}  # fmt: skip


EXAMPLE_LINE = {
    "section_id": "STALLS", "section_name": "Stalls", "seat_id": "STALLS-B-7", "quantity": 1, "returned": 0,
    "unit_price_minor": 6800, "paid_minor": 6800, "tickets": ["4T7Q0ZB5M1XC"], "type_id": "child", "type_name": "Child",
}  # fmt: skip


def events_page() -> str:
    """docs/reference/events.md"""
    return page("Events", TEXT, [
        Section("The envelope", ("field", "type", "what it says"), [
            (code(name), model_fields.kind(field.annotation, {}), ENVELOPE[name])
            for name, field in Event.model_fields.items()
        ], after=_json(example())),
        *(_types(aggregate) for aggregate in ("order", "reservation", "place")),
        Section("Fields of `after`", ("field", "what it says"), [(code(name), text) for name, text in FIELDS.items()]),
        Section("Webhooks", text=_webhooks(), after=_json(webhook_example())),
    ])  # fmt: skip


def _types(aggregate: str) -> Section:
    text = {
        "order": "Of orders. `after` has these fields, and `returned` once tickets of the order went back.",
        "reservation": "Of inventory. Changes of one kind in one batch are one event: `after` has `seats_are` "
        "(`seat.reserved`, `seat.sold` or `seat.released`) and the list `reservations`, each with these fields.",
        "place": "Of the queue. Changes of one kind in one batch are one event: `after` has these fields.",
    }[aggregate]
    rows = [(code(name), when, codes(fields)) for name, (when, fields) in TYPES.items() if name.startswith(aggregate)]
    return Section(f"{aggregate.capitalize()}s", ("type", "when", "fields"), rows, text=text)


def _webhooks() -> str:
    kinds = codes(get_args(WebhookKind))
    return (
        f"A webhook's `type` is one of {kinds}; `order.expired` is `order.cancelled` with that status. `timestamp` is "
        "when it occurred. `data` is `after` without `holder`, `lane`, `join_seq` and `returned`, with the event's "
        "`version` and the `lines` of the order as the API shows them, with `section_name` and the ids of their "
        "`tickets`, and without names; `returned` is in each line. "
        "The headers `webhook-id`, `webhook-timestamp` and `webhook-signature` are those of "
        "[Standard Webhooks](https://www.standardwebhooks.com/)."
    )


def example() -> dict[str, Any]:
    """A confirmed order."""
    made = Event(
        id="5b0e6c1e2f1b4d0f8e3f6c9a7d2b4e11", type="order.confirmed", event_id="arena-2026", occurred_at_ms=AT_MS,
        aggregate="order:7QK2M9TZ4HXA", version=3, before={"status": "pending"}, after=EXAMPLE_AFTER,
    )  # fmt: skip
    return made.model_dump(mode="json")


def webhook_example() -> dict[str, Any]:
    """The same as a webhook."""
    hidden = {"holder", "lane", "join_seq"}
    data = {name: value for name, value in EXAMPLE_AFTER.items() if name not in hidden}
    data |= {"version": 3, "lines": [EXAMPLE_LINE]}
    return {"type": "order.confirmed", "timestamp": AT, "data": data}


def _json(shown: dict[str, Any]) -> str:
    return f"```json\n{json.dumps(shown, ensure_ascii=False, indent=2)}\n```"
