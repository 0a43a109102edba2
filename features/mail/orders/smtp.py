"""The SMTP server, its settings, and the addresses that it is given: parses its URL, senders and recipients, opens
authenticated sessions, and remembers whether it takes addresses beyond ASCII.

An address with such letters before the @ can be written to only by SMTPUTF8 (RFC 6531). It is refused before its owner
pays, unless the server's latest greeting offered that: while the server was never reached, too, since a mail that can
never come is worse than another address.
"""

import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.utils import parseaddr
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

import aiosmtplib
from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import BaseSettings

from shared.errors.problems import Problem
from shared.process.settings import Maybe
from shared.rules.addresses import ascii_domain, ascii_host, normalize_email

REFRESH_S, TIMEOUT_S = 60.0, 20.0  # between two greetings, and of each reply
StartTls = Literal["auto", "always", "never"]
PORTS = {"smtp": 587, "smtps": 465}


class InvalidMailbox(ValueError):
    """The text is not exactly one mailbox."""


class AddressNotMailable(Problem, status=422):
    """We cannot send mail to an address with letters such as é or ü before the @. Use another address."""


def server_of(url: str) -> dict[str, Any]:
    """What `aiosmtplib.SMTP` needs of `smtp://user:password@host:587`. Raises `ValueError`, never with the URL: it may
    have a password.
    """
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise ValueError("the port of the mail server is no number") from None
    if parts.scheme not in PORTS or not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("a mail server is smtp://user:password@host:587 or smtps://host")
    user = unquote(parts.username) if parts.username else None
    return {
        "hostname": ascii_host(parts.hostname), "port": port or PORTS[parts.scheme],
        "use_tls": parts.scheme == "smtps", "username": user,
        "password": unquote(parts.password or "") if user else None,
    }  # fmt: skip


def parse_sender(text: str) -> Address:
    """Parses `Name <box@host>`, or the bare address, for a header. Raises `ValueError` for more than one mailbox and
    for line breaks.
    """
    name, bare = parseaddr(text)
    if not bare or any(not character.isprintable() for character in text):
        raise ValueError("a sender is `Name <box@host>`")
    box = parse_mailbox(bare)
    return Address(display_name=name, username=box.username, domain=box.domain)


def parse_mailbox(text: str) -> Address:
    """Parses a recipient: exactly one mailbox, its domain as limits count it. Raises `InvalidMailbox`."""
    local, _, host = text.rpartition("@")
    try:
        if local.isascii():
            return Address(addr_spec=f"{local}@{ascii_domain(host)}")
        normalize_email(text)
        return Address(username=unicodedata.normalize("NFC", local), domain=ascii_domain(host))
    except (ValueError, IndexError, HeaderParseError) as broken:
        raise InvalidMailbox("not one mailbox") from broken


def needs_smtputf8(address: str) -> bool:
    """Whether only a server with SMTPUTF8 can mail this address: letters beyond ASCII before the @ stay as they are."""
    return not address.rpartition("@")[0].isascii()


def _server(url: SecretStr | None) -> SecretStr | None:
    if url is not None:
        server_of(url.get_secret_value())
    return url


def _sender(text: str) -> str:
    parse_sender(text)
    return text


class MailSettings(BaseSettings):
    """Settings that join those of orders."""

    smtp_url: Annotated[SecretStr | None, AfterValidator(_server), Maybe] = Field(
        None, description="The mail server: smtp://user:password@host:587 or smtps://…; without it no mail is sent."
    )
    smtp_starttls: StartTls = Field(
        "auto", description="auto: STARTTLS if the server offers it, and always before a password is sent."
    )
    mail_from: Annotated[str, AfterValidator(_sender)] = Field(
        "Onsale <tickets@localhost>", description="The sender of mails."
    )
    mails_per_s: int = Field(10, ge=1, le=1000, description="Mails sent a second, at most.")
    mail_tickets: bool = Field(False, description="Attach the tickets to the confirmation as PDF.")


@dataclass(slots=True)
class MailServer:
    """The mail server as this process knows it; `server` is what `server_of` found."""

    server: dict[str, Any] = field(repr=False)
    starttls: StartTls
    timeout_s: float = TIMEOUT_S
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

    def check_address(self, address: str) -> None:
        """Raises `AddressNotMailable` for an address that this server can never write to."""
        if needs_smtputf8(address) and not self.has_smtputf8:
            raise AddressNotMailable
