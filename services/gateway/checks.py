"""What only the gateway checks: how many places one address may take at once."""

from services.gateway.settings import Settings
from shared.contracts.admin.checks import Check, ok, suspicious

PER_S_DEFAULT, BURST_DEFAULT = (Settings.model_fields[f"address_joins_{name}"].default for name in ("per_s", "burst"))


def own_checks(settings: Settings) -> list[Check]:
    """A limit above the default may be meant for a school or an office network, or forgotten after a load test."""
    subject, burst, per_s = "Joins of an address", settings.address_joins_burst, settings.address_joins_per_s
    found = f"{burst} at once, then {per_s:g}/s, at each process"
    if burst > BURST_DEFAULT or per_s > PER_S_DEFAULT:
        advice = "One address takes so many places. Lower GATEWAY_ADDRESS_JOINS_BURST and …_PER_S before a sale."
        return [suspicious(subject, found, advice)]
    return [ok(subject, found)]
