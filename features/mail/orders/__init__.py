"""The part of orders: e-mail about orders and holds, the loops that send it, reminders and opt-outs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from features.mail.orders import reminders, smtp
from features.mail.orders.compose import MailComposer
from features.mail.orders.dispatcher import MailDispatcher
from features.mail.orders.reminders import Outgoing
from features.mail.orders.smtp import MailSettings
from services.orders.state import State
from shared.concurrency.background import Loops
from shared.contracts.admin.checks import Check, ok, suspicious
from shared.security.limits import FanLimit
from shared.web.parts import Part

MAIL_INTERVAL_S = 1.0
COUNTED_MAX = 65_536
LINKS_PER_MINUTE, LINKS_BURST = 2, 10  # of one client address


@asynccontextmanager
async def open_mail(state: State, loops: Loops) -> AsyncIterator[Outgoing]:
    """With a server orders queue mails from now on, and these loops send them."""
    settings, db = state.settings, state.db
    assert isinstance(settings, MailSettings)
    limiter = FanLimit(
        per_s=LINKS_PER_MINUTE / 60, burst=LINKS_BURST, keys_max=COUNTED_MAX, shared_by=settings.processes
    )
    server = None
    if settings.smtp_url is not None:
        server = smtp.MailServer(smtp.server_of(settings.smtp_url.get_secret_value()), settings.smtp_starttls)
        state.mail.is_sent, state.mail.check_address = True, server.check_address
        composer = MailComposer(state.store, state.inventory, state.papers, settings, settings)
        dispatcher = MailDispatcher(db, composer, server)
        consents = partial(reminders.import_consents, db, state.inventory, settings)
        loops.every(smtp.REFRESH_S, server.refresh, name="orders.mail_server")
        loops.every(MAIL_INTERVAL_S, dispatcher.run_once, name="orders.mail")
        loops.every(reminders.CONSENT_POLL_S, consents, name="orders.consents")
        loops.every(3600, dispatcher.forget, name="orders.mail_forget")
    yield Outgoing(server, limiter)


def check_server(settings: MailSettings) -> list[Check]:
    """Whether mail is sent."""
    if settings.smtp_url is None:
        return [
            suspicious(
                "Mail", "no server, so fans get no confirmation by mail", "Set ORDERS_SMTP_URL. See docs/use/mail.md."
            )
        ]
    return [ok("Mail", f"from {settings.mail_from}")]


PART = Part(routers=[reminders.router], settings=MailSettings, open=open_mail, checks=check_server)
