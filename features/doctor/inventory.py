"""What only inventory checks: how many seats one address may hold."""

from features.doctor.process import doctor_part
from services.inventory.settings import Settings
from shared.contracts.admin.checks import Check, ok, suspicious

HOLDS_DEFAULT = Settings.model_fields["address_holds_max"].default


def own_checks(settings: Settings) -> list[Check]:
    """Without a limit one address can hold a hall."""
    subject, holds = "Holds of an address", settings.address_holds_max
    found = f"{holds} at each process" if holds else "no limit"
    if holds and holds <= HOLDS_DEFAULT:
        return [ok(subject, found)]
    return [suspicious(subject, found, "One address can keep a section from others: set INVENTORY_ADDRESS_HOLDS_MAX.")]


PART = doctor_part("inventory", own_checks)
