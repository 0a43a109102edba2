"""Steps on the recorded site: a fan who was called chooses and holds, at once and without a suite."""

import base64
from collections import Counter
from collections.abc import Iterable
from typing import Any

from playwright.async_api import expect

from features.hall import seat_codes
from tests.browser.recorded.site import BYTES, DONE, Asked, Json, RecordedSite

RESERVATION_ID, REFERENCE = "a" * 32, "ABCDEFGH2345"


async def come_in(page: Any, site: RecordedSite, event_id: str = "hall", **admitted: Any) -> None:
    """Opens the page of a fan who was called, and chooses. `admitted` are fields of the pass."""
    path = f"/events/{event_id}"
    site.answers |= {
        f"GET {path}/queue/status": site.answers["admitted"] | {"poll_after_ms": 60_000},
        f"POST {path}/queue/pass": site.answers["POST /events/hall/queue/pass"] | admitted,
    }
    site.answers.setdefault(f"GET {path}/map/reserved", {"seats": 0, "free": {}})
    Holds(site, event_id)
    await page.goto(f"{site.url}/e/{event_id}")
    await expect(page.locator("#choosing-title")).to_be_focused()
    event = site.answers[f"GET {path}"]
    if event["map_hash"] and len(event["sections"]) > 1:
        await expect(page.locator("#hall .hall-label[data-lines]").first).to_be_visible()  # it moves what is below


def change_seats(site: RecordedSite, event_id: str, seats: Iterable[str], code: int) -> None:
    """Other fans hold, buy or return seats: the states say so, and every stream."""
    request, places = f"GET /events/{event_id}/map/state", [
        f"{shape['section_id']}-{row + 1}-{n + 1}"
        for shape in site.answers[f"GET /events/{event_id}/map"]["sections"] if shape["rows"]
        for row in range(shape["rows"]["count"]) for n in range(shape["rows"]["seats"])
    ]  # fmt: skip
    epoch, version, codes = seat_codes.decode_state(base64.b64decode(site.answers[request][BYTES]))
    changed = bytearray(codes)
    indexes = sorted(places.index(seat) for seat in seats)
    for index in indexes:
        changed[index] = code
    state = seat_codes.encode_state(epoch, version + 1, bytes(changed))
    site.answers[request] = {BYTES: base64.b64encode(state).decode()}
    delta = base64.b64encode(seat_codes.encode_changes(bytes(changed), indexes)).decode()
    site.send("seats", {"v": version + 1, "after": version, "d": delta})


class Holds:
    """Holds what is asked for, at the recorded prices, keeps what is asked to be kept, and changes price types."""

    def __init__(self, site: RecordedSite, event_id: str) -> None:
        self._answers, self._path = site.answers, f"/events/{event_id}"
        self._held: Json = site.answers["POST /events/hall/reservations"]
        self._quote: Json = site.answers["POST /orders/quote"]
        self._event: Json = site.answers[f"GET {self._path}"]
        self._types: list[str] = [each["type_id"] for each in self._event["price_types"]]
        own = f"{self._path}/reservations/{RESERVATION_ID}"
        site.answers |= {
            f"POST {self._path}/reservations": self._hold, f"POST {own}/keep": self._keep,
            f"POST {own}/types": self._change,
            f"GET {own}": lambda asked: self._held, f"DELETE {own}": DONE, "POST /orders/quote": self._bill,
        }  # fmt: skip

    def _hold(self, asked: Asked) -> Json:
        wish = asked.body
        types = wish.get("types", {})
        if best := wish.get("best_available"):
            kept = [f"A-4-{n}" for n in (*(1, 8)[: best.get("wheelchair", 0)], *(2, 7)[: best.get("companions", 0)])]
            others = range(best["quantity"] - len(kept))
            seats = kept + [f"{best.get('section_id', 'A')}-1-{n + 1}" for n in others]
            wanted = [each for each, n in best.get("types", {}).items() for _ in range(n)]
            wanted.sort(key=["chair", "carer", "child"].index)
            wish, types = {"seats": seats}, dict(zip(seats, wanted, strict=False))
        return self._told(wish.get("seats", []), types, wish.get("ga", []))

    def _keep(self, asked: Asked) -> Json:
        types = {ticket["seat_id"]: ticket["type_id"] for ticket in self._held["tickets"]}
        return self._told(asked.body.get("seats", []), types, asked.body.get("ga", []))

    def _change(self, asked: Asked) -> Json:
        return self._told(self._held["seats"], asked.body["types"], asked.body["ga"])

    def _told(self, seats: list[str], types: Json, ga: list[Json]) -> Json:
        tickets = [self._ticket(seat, 1, types.get(seat)) for seat in seats]
        tickets += [self._ticket(part["section_id"], part["quantity"], part.get("type_id")) for part in ga]
        counted = Counter[str]()
        for part in ga:
            counted[part["section_id"]] += part["quantity"]
        self._held = {
            **self._held, "seats": seats, "tickets": tickets,
            "ga": [{"section_id": section, "quantity": n} for section, n in counted.items()],
            "total_amount_minor_units": sum(self._all_in(ticket) * ticket["quantity"] for ticket in tickets),
        }  # fmt: skip
        return self._held

    def _ticket(self, place: str, quantity: int, type_id: str | None) -> Json:
        section_id, is_seat = place.partition("-")[0], "-" in place
        seats = self._answers.get(f"GET {self._path}/sections/{section_id}/seats", {"seats": []})["seats"]
        [at] = [
            each
            for each in [*self._event["sections"], *seats]
            if place in (each.get("seat_id"), each.get("section_id"))
        ]
        prices = {self._types[0]: at["price_minor"], **at["prices"]} if self._types else {}
        of = type_id or (self._types[0] if self._types else None)
        return {
            "section_id": section_id, "seat_id": place if is_seat else None, "quantity": quantity, "type_id": of,
            "unit_price_minor": prices[of] if of else at["price_minor"], "prices": prices,
        }  # fmt: skip

    def _all_in(self, ticket: Json) -> int:
        """One ticket with all fees."""
        prices, of, minor = (
            self._answers[f"GET /orders{self._path}/prices"],
            ticket["type_id"],
            ticket["unit_price_minor"],
        )
        usual = of is None or of == self._types[0]
        whole: int = (prices["all_in"] if usual else prices["all_in_by_type"][of])[str(minor)]
        return whole

    def _bill(self, asked: Asked) -> Json:
        return {**self._quote, "total_minor": self._held["total_amount_minor_units"]}
