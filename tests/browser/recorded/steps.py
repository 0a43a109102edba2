"""Steps on the recorded site: a fan who was called chooses and holds, at once and without a suite."""

import base64
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
    Holds(site, event_id)
    await page.goto(f"{site.url}/e/{event_id}")
    await expect(page.locator("#choosing-title")).to_be_focused()
    if len(site.answers[f"GET {path}"]["sections"]) > 1:
        await expect(page.locator("#hall .hall-label[data-lines]").first).to_be_visible()  # it moves what is below


def change_seat(site: RecordedSite, event_id: str, seat: str, code: int) -> None:
    """Other fans hold, buy or return a seat: the states say so, and every stream."""
    request, places = f"GET /events/{event_id}/map/state", [
        f"{shape['section_id']}-{row + 1}-{n + 1}"
        for shape in site.answers[f"GET /events/{event_id}/map"]["sections"] if shape["rows"]
        for row in range(shape["rows"]["count"]) for n in range(shape["rows"]["seats"])
    ]  # fmt: skip
    epoch, version, codes = seat_codes.decode_state(base64.b64decode(site.answers[request][BYTES]))
    changed = bytearray(codes)
    changed[places.index(seat)] = code
    state = seat_codes.encode_state(epoch, version + 1, bytes(changed))
    site.answers[request] = {BYTES: base64.b64encode(state).decode()}
    delta = base64.b64encode(seat_codes.encode_changes(bytes(changed), [places.index(seat)])).decode()
    site.send("seats", {"v": version + 1, "after": version, "d": delta})


class Holds:
    """Holds what is asked for, at the recorded prices, and keeps what is asked to be kept."""

    def __init__(self, site: RecordedSite, event_id: str) -> None:
        self._answers, self._path = site.answers, f"/events/{event_id}"
        self._held: Json = site.answers["POST /events/hall/reservations"]
        self._quote: Json = site.answers["POST /orders/quote"]
        own = f"{self._path}/reservations/{RESERVATION_ID}"
        site.answers |= {
            f"POST {self._path}/reservations": self._hold, f"POST {own}/keep": self._hold,
            f"GET {own}": lambda asked: self._held, f"DELETE {own}": DONE, "POST /orders/quote": self._bill,
        }  # fmt: skip

    def _hold(self, asked: Asked) -> Json:
        wish = asked.body
        if best := wish.get("best_available"):
            wish = {"seats": [f"{best.get('section_id', 'A')}-1-{n + 1}" for n in range(best["quantity"])]}
        seats, ga = wish.get("seats", []), wish.get("ga", [])
        parts = [self._price(seat) for seat in seats] + [
            self._price(part["section_id"]) * part["quantity"] for part in ga
        ]
        self._held = {**self._held, "seats": seats, "ga": ga, "total_amount_minor_units": sum(parts)}
        return self._held

    def _bill(self, asked: Asked) -> Json:
        return {**self._quote, "total_minor": self._held["total_amount_minor_units"]}

    def _price(self, place: str) -> int:
        """Of a seat, or of one ticket of a section."""
        section_id = place.partition("-")[0]
        seats = self._answers.get(f"GET {self._path}/sections/{section_id}/seats", {"seats": []})["seats"]
        sections = self._answers[f"GET {self._path}"]["sections"]
        minors = {each.get("seat_id") or each["section_id"]: each["price_minor"] for each in [*sections, *seats]}
        whole: int = self._answers[f"GET /orders{self._path}/prices"]["all_in"][str(minors[place])]
        return whole
