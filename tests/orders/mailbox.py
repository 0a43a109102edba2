"""A mail server on a port of its own, which fails on command and keeps the mails it accepts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from functools import partial
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session
from sqlalchemy import select

from services.orders.mail.compose import MailComposer
from services.orders.mail.dispatcher import MailDispatcher
from services.orders.mail.smtp import session
from services.orders.mail.tables import mail
from services.orders.mail_settings import server_of
from tests.orders.shop import Shop

Word = str | None
DROP = "drop"


@dataclass
class Mailbox:
    """`words` are its answers to the next mails, one each; then it accepts. `refused` are the recipients it rejects."""

    words: list[Word] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    taken: list[EmailMessage] = field(default_factory=list)
    envelopes: list[tuple[str, list[str]]] = field(default_factory=list)
    tried: int = 0
    pause: Callable[[], Any] | None = None
    port: int = 0

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.tried += 1
        if self.pause is not None:
            await self.pause()
        word = self.words.pop(0) if self.words else None
        if word == DROP:
            _abort(server)
            return "421 gone"
        if word is not None:
            return word
        assert isinstance(envelope.content, bytes)
        self.taken.append(message_from_bytes(envelope.content, policy=default))
        self.envelopes.append((envelope.mail_from or "", envelope.rcpt_tos))
        return "250 taken"

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Mailbox"]:
        """Listens; again on the same port if it did before."""
        loop = asyncio.get_running_loop()
        made: list[SMTP] = []

        def protocol() -> SMTP:
            made.append(SMTP(self, hostname="mail.test", enable_SMTPUTF8=False, loop=loop))
            return made[-1]

        server = await loop.create_server(protocol, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()
            for one in made:
                _abort(one)


def _abort(server: SMTP) -> None:
    if isinstance(server.transport, asyncio.WriteTransport):
        server.transport.abort()


def postman(shop: Shop, url: str | None = None) -> MailDispatcher:
    state = shop.app.state.deps
    server = server_of(url or state.settings.smtp_url.get_secret_value())
    connect = partial(session, server, starttls="auto", timeout_s=5.0)
    return MailDispatcher(
        state.db,
        MailComposer(state.repository, state.inventory, state.pdf_renderer, state.settings),
        state.settings,
        connect,
    )


async def rows(shop: Shop) -> dict[str, tuple[int, bool, bool, str]]:
    """By key: tries, whether sent, whether given up, and why."""
    async with shop.app.state.deps.db.connect() as connection:
        return {
            row.mail_key: (row.tries, row.sent_at is not None, row.abandoned_at is not None, row.error or "")
            for row in await connection.execute(select(mail))
        }


async def due_again(shop: Shop) -> None:
    """As if the pause were over."""
    await shop.run("UPDATE orders.mail SET due_at = now() WHERE sent_at IS NULL")
