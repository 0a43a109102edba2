"""What only the gateway checks: how many places one address may take at once."""

from features.doctor.process import doctor_part
from services.gateway.settings import Settings
from shared.contracts.admin.checks import Check, ok, suspicious
from shared.security.limits import BURST_S

PER_S_DEFAULT = Settings.model_fields["address_joins_per_s"].default


def own_checks(settings: Settings) -> list[Check]:
    """A limit above the default may be meant for a school or an office network, or forgotten after a load test."""
    subject, per_s = "Joins of an address", settings.address_joins_per_s
    found = f"{per_s * BURST_S:g} at once, then {per_s:g}/s, at each process"
    if per_s > PER_S_DEFAULT:
        advice = "One address takes so many places. Lower GATEWAY_ADDRESS_JOINS_PER_S before a sale."
        return [suspicious(subject, found, advice)]
    return [ok(subject, found)]


PART = doctor_part("gateway", own_checks)
