"""The order of the notifier's tests, as orders itself writes it."""

from services.orders.checkout.checkout import OrderDraft, new_order
from services.orders.checkout.requests import NewOrder
from services.orders.pricing.quote import price
from services.orders.state import State
from shared.contracts.inventory import Reservation, ReservedItem
from shared.contracts.prices import PriceRules
from shared.runtime.clock import now_ms
from tests.notifier.frames import EVENT, REFERENCE

HOLDER = "holder-0-1"


async def write_order(state: State, reference: str = REFERENCE, *, holder: str = HOLDER) -> None:
    """A pending order of one ticket, which no worker takes."""
    held = ReservedItem(section_id="GA1", unit_price_minor=3000)
    reservation_id = reference.encode().hex().rjust(32, "0")
    reservation = Reservation(
        event_id=EVENT, reservation_id=reservation_id, holder=holder, status="paying", total_minor=3000, currency="EUR",
        reserved_until_ms=now_ms() + 600_000, lines=[held],
    )  # fmt: skip
    request = NewOrder.model_validate({
        "reservation_id": reservation_id, "expected_total_minor": 3000, "currency": "EUR",
        "customer": {"name": "Ada Fan", "email": "ada@example.org"}, "payment": {"method": "card"},
    })  # fmt: skip
    quote = price([held], PriceRules(), currency="EUR")
    order = new_order(reference, reservation, quote, request, language="en", capture=True)
    draft = OrderDraft(order, key_hash=reference.encode(), fingerprint=b"")
    await state.checkout.writer.insert(draft)
