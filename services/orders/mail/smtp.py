"""Opens authenticated sessions with the SMTP server, and remembers whether it takes addresses beyond ASCII.

An address with such letters before the @ can be written to only by SMTPUTF8 (RFC 6531). It is refused before its owner
pays, unless the server's latest greeting offered that: while the server was never reached, too, since a mail that can
never come is worse than another address.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import aiosmtplib

REFRESH_S = 60.0
StartTls = Literal["auto", "always", "never"]


@dataclass(slots=True)
class MailServer:
    """The mail server as this process knows it; `server` is what `server_of` found."""

    server: dict[str, Any] = field(repr=False)
    starttls: StartTls
    timeout_s: float
    has_smtputf8: bool = False

    @asynccontextmanager
    async def session(self) -> AsyncIterator[aiosmtplib.SMTP]:
        """An authenticated SMTP session; what the greeting offers is remembered. Raises `aiosmtplib.SMTPException` and
        `OSError`.
        """
        wanted = {"always": True, "never": False, "auto": True if self.server["username"] else None}[self.starttls]
        start_tls = False if self.server["use_tls"] else wanted
        async with aiosmtplib.SMTP(**self.server, start_tls=start_tls, timeout=self.timeout_s) as client:
            if client.is_ehlo_or_helo_needed:
                await client.ehlo()
            self.has_smtputf8 = client.supports_extension("smtputf8")
            yield client

    async def refresh(self) -> None:
        """Greets the server; while it is away, what it said last stays."""
        with suppress(aiosmtplib.SMTPException, OSError):
            async with self.session():
                pass
