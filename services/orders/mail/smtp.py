"""Opens an authenticated session with the SMTP server."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

import aiosmtplib

from services.orders.mail_settings import SmtpServer


@asynccontextmanager
async def session(
    server: SmtpServer, *, starttls: Literal["auto", "always", "never"], timeout_s: float
) -> AsyncIterator[aiosmtplib.SMTP]:
    """An authenticated SMTP session. Raises `aiosmtplib.SMTPException` and `OSError`."""
    wanted = {"always": True, "never": False, "auto": True if server.user else None}[starttls]
    client = aiosmtplib.SMTP(
        hostname=server.host, port=server.port, use_tls=server.tls, start_tls=False if server.tls else wanted,
        username=server.user, password=server.password, timeout=timeout_s,
    )  # fmt: skip
    await client.connect()
    try:
        yield client
    finally:
        with suppress(aiosmtplib.SMTPException, OSError, ssl.SSLError):
            await client.quit()
        client.close()
