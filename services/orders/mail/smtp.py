"""Opens authenticated sessions with the SMTP server, and remembers whether it takes addresses beyond ASCII.

An address with such letters before the @ can be written to only by SMTPUTF8 (RFC 6531). It is refused before its owner
pays, unless the server's latest greeting offered that: while the server was never reached, too, since a mail that can
never come is worse than another address.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal

import aiosmtplib

from services.orders.mail_settings import SmtpServer, needs_smtputf8
from services.orders.problems import AddressNotMailable

REFRESH_S = 60.0
StartTls = Literal["auto", "always", "never"]


@asynccontextmanager
async def session(server: SmtpServer, *, starttls: StartTls, timeout_s: float) -> AsyncIterator[aiosmtplib.SMTP]:
    """An authenticated SMTP session. Raises `aiosmtplib.SMTPException` and `OSError`."""
    wanted = {"always": True, "never": False, "auto": True if server.user else None}[starttls]
    client = aiosmtplib.SMTP(
        hostname=server.host, port=server.port, use_tls=server.tls, start_tls=False if server.tls else wanted,
        username=server.user, password=server.password, timeout=timeout_s,
    )  # fmt: skip
    await client.connect()
    try:
        if client.is_ehlo_or_helo_needed:
            await client.ehlo()
        yield client
    finally:
        with suppress(aiosmtplib.SMTPException, OSError, ssl.SSLError):
            await client.quit()
        client.close()


@dataclass(slots=True)
class MailServer:
    """The mail server as this process knows it."""

    server: SmtpServer
    starttls: StartTls
    timeout_s: float
    has_smtputf8: bool = False

    @asynccontextmanager
    async def session(self) -> AsyncIterator[aiosmtplib.SMTP]:
        """As `session`; what the greeting offers is remembered."""
        async with session(self.server, starttls=self.starttls, timeout_s=self.timeout_s) as client:
            self.has_smtputf8 = client.supports_extension("smtputf8")
            yield client

    async def refresh(self) -> None:
        """Greets the server; while it is away, what it said last stays."""
        with suppress(aiosmtplib.SMTPException, OSError):
            async with self.session():
                pass

    def require_mailable(self, address: str) -> None:
        """Raises `AddressNotMailable`."""
        if needs_smtputf8(address) and not self.has_smtputf8:
            raise AddressNotMailable
