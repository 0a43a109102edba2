"""Makes an event with 5,000 tickets, paid by bank transfer, in an empty pretix: `python -m pretix shell < event.py`."""

from datetime import UTC, datetime
from decimal import Decimal

from django_scopes import scopes_disabled
from pretix.base.models import Event, Organizer

with scopes_disabled():
    organizer = Organizer.objects.create(name="Box office", slug="box", plugins="pretix.plugins.banktransfer")
    event = Event.objects.create(
        organizer=organizer,
        name="Arena night",
        slug="arena",
        currency="EUR",
        live=True,
        date_from=datetime(2030, 6, 1, 18, tzinfo=UTC),
        plugins="pretix.plugins.banktransfer",
    )
    quota = event.quotas.create(name="Hall", size=5000)
    quota.items.add(event.items.create(name="Standing", default_price=Decimal("39.00"), admission=True))
    event.settings.set("payment_banktransfer__enabled", True)
    event.settings.set("payment_banktransfer_bank_details_type", "other")
    event.settings.set("payment_banktransfer_bank_details", "An account to try with")
    event.settings.set("invoice_address_asked", False)
    event.settings.set("attendee_names_asked", False)
