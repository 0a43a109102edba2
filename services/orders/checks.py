"""What only orders checks: who is paid, where links lead, and whether mail is sent."""

from urllib.parse import urlsplit

from services.orders.settings import Settings
from services.orders.tickets.lettering import unprintable
from shared.contracts.admin.checks import Check, ok, suspicious
from shared.rules.addresses import is_loopback

NAMED_MAX = 10


def paper_warnings(missing: str) -> list[str]:
    """What an operator should know before texts with these characters are printed."""
    named = ", ".join(f"{sign} (U+{ord(sign):04X})" for sign in missing[:NAMED_MAX])
    more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
    warning = (
        f"Tickets and receipts cannot show {named}{more}: letters are printed as boxes, and pictures are left out. "
        "Write the names in a script that papers have; the documentation of tickets names them."
    )
    return [warning] if missing else []


def own_checks(settings: Settings) -> list[Check]:
    return [_payment(settings), _public_url(settings), _mail(settings), _papers(settings)]


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


def _papers(settings: Settings) -> Check:
    """The seller on receipts; names of an event are checked when its file is applied."""
    missing = unprintable([settings.seller], custom=False)
    if settings.print_font is not None or not missing:
        return ok("Papers", settings.seller.partition("\n")[0] or "no seller on receipts")
    advice = "Write it in a script that papers have, or set ORDERS_PRINT_FONT. See docs/use/tickets.md."
    return suspicious("Papers", f"receipts cannot show these letters of ORDERS_SELLER: {missing}", advice)


def _mail(settings: Settings) -> Check:
    if settings.smtp_url is None:
        return suspicious(
            "Mail", "no server, so fans get no confirmation by mail", "Set ORDERS_SMTP_URL. See docs/use/mail.md."
        )
    return ok("Mail", f"from {settings.mail_from}")
