"""The mail server, as one address in the settings names it; and what may stand in an address of ours."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.utils import parseaddr
from typing import Literal
from urllib.parse import unquote, urlsplit

import aiosmtplib

PORTS = {"smtp": 587, "smtps": 465}


class NoMailbox(ValueError):
    """This is not one mailbox."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where mail is handed in."""

    host: str
    port: int
    tls: bool
    user: str | None = None
    password: str | None = field(default=None, repr=False)


def server_of(url: str) -> Server:
    """Raises `ValueError`, which never tells what is in the address."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise ValueError("the port of the mail server is no number") from None
    if parts.scheme not in PORTS or not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("a mail server is smtp://user:password@host:587 or smtps://host")
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password or "") if user else None
    return Server(parts.hostname, port or PORTS[parts.scheme], parts.scheme == "smtps", user, password)


def readable_address(text: str) -> str:
    """`Name <box@host>`, or the bare address. Raises `ValueError`."""
    address_of(text)
    return text


def address_of(text: str) -> Address:
    """As it may stand in a header: one mailbox, no line of its own."""
    name, bare = parseaddr(text)
    if not bare or any(not sign.isprintable() for sign in text):
        raise ValueError("a sender is `Name <box@host>`")
    box = mailbox(bare)
    return Address(display_name=name, username=box.username, domain=box.domain)


def mailbox(text: str) -> Address:
    """Whom mail is for: exactly one mailbox, its host as DNS writes it. Raises `NoMailbox`."""
    local, _, host = text.rpartition("@")
    try:
        return Address(addr_spec=f"{local}@{host.encode('idna').decode()}")
    except (ValueError, IndexError, HeaderParseError) as broken:
        raise NoMailbox("not one mailbox") from broken


@asynccontextmanager
async def session(
    server: Server, *, starttls: Literal["auto", "always", "never"], timeout_s: float
) -> AsyncIterator[aiosmtplib.SMTP]:
    """A conversation with the server, who knows us by then. Raises `aiosmtplib.SMTPException` and `OSError`."""
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
