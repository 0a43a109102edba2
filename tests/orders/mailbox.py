"""A mail server on a port of its own, which fails on command and keeps the mails it accepts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session
from sqlalchemy import select

from features.mail.orders.compose import MailComposer
from features.mail.orders.dispatcher import MailDispatcher
from features.mail.orders.smtp import MailServer, MailSettings, server_of
from services.orders.tables import mail
from tests.orders.shop import Shop

DROP = "drop"


@dataclass
class Mailbox:
    """`replies` are its replies to the next mails, one each (None accepts); then it accepts. `rejected` has its replies
    to recipients that it rejects. `smtputf8`: it takes addresses beyond ASCII. `received` are the mails it accepted of
    the `attempts` made, `recipients` those of the latest.
    """

    replies: list[str | None] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    received: list[EmailMessage] = field(default_factory=list)
    envelopes: list[tuple[str, list[str]]] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    attempts: int = 0
    pause: Callable[[], Any] | None = None
    port: int = 0
    smtputf8: bool = False

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.rejected:
            return self.rejected[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.attempts += 1
        self.recipients = envelope.rcpt_tos
        if self.pause is not None:
            await self.pause()
        reply = self.replies.pop(0) if self.replies else None
        if reply == DROP:
            _abort(server)
            return "421 gone"
        if reply is not None:
            return reply
        assert isinstance(envelope.content, bytes)
        self.received.append(message_from_bytes(envelope.content, policy=default))
        self.envelopes.append((envelope.mail_from or "", envelope.rcpt_tos))
        return "250 accepted"

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Mailbox"]:
        """Listens on a free port, later on the same."""
        loop = asyncio.get_running_loop()
        connections: list[SMTP] = []

        def protocol() -> SMTP:
            connections.append(SMTP(self, hostname="mail.test", enable_SMTPUTF8=self.smtputf8, loop=loop))
            return connections[-1]

        server = await loop.create_server(protocol, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()
            for connection in connections:
                _abort(connection)


def _abort(server: SMTP) -> None:
    if isinstance(server.transport, asyncio.WriteTransport):
        server.transport.abort()


def mail_dispatcher(shop: Shop, url: str | None = None) -> MailDispatcher:
    state, settings = shop.state, shop.state.settings
    assert isinstance(settings, MailSettings)
    if url is None:
        assert settings.smtp_url is not None
        url = settings.smtp_url.get_secret_value()
    server = MailServer(server_of(url), "auto", timeout_s=5.0)
    return MailDispatcher(
        state.db, MailComposer(state.store, state.inventory, state.papers, settings, settings), server
    )


async def mail_rows(shop: Shop) -> dict[str, tuple[int, bool, bool, str]]:
    """By key: tries, whether sent, whether abandoned, and the error."""
    return {
        row.mail_key: (row.tries, row.sent_at is not None, row.abandoned_at is not None, row.error or "")
        for row in await shop.query(select(mail))
    }


async def send_due(shop: Shop) -> None:
    """Makes all unsent mail due and sends it."""
    await make_mail_due(shop)
    await mail_dispatcher(shop).run_once()


async def make_mail_due(shop: Shop) -> None:
    """Ends the pause before the next try."""
    await shop.run("UPDATE orders.mail SET due_at = now() WHERE sent_at IS NULL")
