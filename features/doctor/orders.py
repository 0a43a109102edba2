"""What only orders checks: who is paid, and where links lead."""

from urllib.parse import urlsplit

from features.doctor.process import doctor_part
from services.orders.settings import Settings
from shared.contracts.admin.checks import Check, ok, suspicious
from shared.rules.addresses import is_loopback


def own_checks(settings: Settings) -> list[Check]:
    return [_payment(settings), _public_url(settings)]


def _payment(settings: Settings) -> Check:
    providers = ", ".join(settings.payment_providers)
    if "sandbox" not in settings.payment_providers:
        return ok("Payment", providers)
    return suspicious("Payment", providers, "The sandbox charges nobody. To sell: ORDERS_PAYMENT_PROVIDERS=stripe.")


def _public_url(settings: Settings) -> Check:
    url = settings.public_url
    if settings.environment == "development" or url.startswith("https://"):
        return ok("Public address", url)
    local = is_loopback(urlsplit(url).hostname or "")
    wrong = "links in mail and payments lead to the reader's own machine" if local else "links are without HTTPS"
    return suspicious("Public address", f"{url}: {wrong}", "Set ONSALE_PUBLIC_URL to the shop's https address.")


PART = doctor_part("orders", own_checks)
