"""The forms of reservations for pages without scripts: hold tickets, release all or a part, and ask for more time."""

import re
from collections.abc import Mapping
from typing import Any

from shared.routes import EVENT_ID, SECTION_ID
from shared.web.forms import Form, SentForm
from shared.web.request import FormFields

EVENT = rf"/events/(?P<event_id>{EVENT_ID})"
RESERVATION = rf"{EVENT}/reservations/(?P<reservation_id>[0-9a-f]{{32}})"
_section_id = re.compile(SECTION_ID)


def reserve_body(fields: FormFields) -> dict[str, Any]:
    """The best available places (`quantity`, `where`, `split`), or the places that are named."""
    quantity = fields.number("quantity")
    if quantity is None:
        return _named(fields)
    where, split = fields.one("where"), fields.one("split") is not None
    return {"best_available": fields.given(quantity=quantity, section_id=where, split=split or None)}


def _named(fields: FormFields) -> dict[str, Any]:
    """Seats by `seat`, and general admission by `ga.<section>`; none of a section is not named."""
    wanted = fields.numbers_below("ga")
    ga = [{"section_id": section, "quantity": quantity} for section, quantity in wanted.items() if quantity != 0]
    return fields.given(seats=fields.all("seat"), ga=ga)


def event_page(sent: SentForm) -> str:
    """The event's page; after a refusal the section whose seats were shown."""
    section = sent.fields.one("section") or ""
    chosen = f"?section={section}" if sent.slug and _section_id.fullmatch(section) else ""
    return f"/e/{sent.path['event_id']}{chosen}"


def kept_reservation(sent: SentForm) -> Mapping[str, str]:
    """A hold's id, by which the page's script finds the hold if scripts are switched on meanwhile."""
    held = sent.answer.get("reservation_id")
    return {f"onsale_reservation_{sent.path['event_id']}": str(held)} if held and not sent.slug else {}


FORMS = (
    Form(f"{EVENT}/reservations", reserve_body, event_page, cookies=kept_reservation),
    Form(RESERVATION, lambda fields: {}, event_page, method="DELETE"),
    Form(f"{RESERVATION}/extend", lambda fields: {}, event_page),
    Form(f"{RESERVATION}/keep", _named, event_page),
)
