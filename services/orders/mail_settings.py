"""Parses the mail settings and mail addresses: the SMTP server's URL, the sender and recipients."""

import unicodedata
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.utils import parseaddr
from typing import Any
from urllib.parse import unquote, urlsplit

from shared.rules.addresses import ascii_domain, ascii_host, normalize_email

PORTS = {"smtp": 587, "smtps": 465}


class InvalidMailbox(ValueError):
    """The text is not exactly one mailbox."""


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


def readable_address(text: str) -> str:
    """`Name <box@host>`, or the bare address. Raises `ValueError`."""
    parse_sender(text)
    return text


def parse_sender(text: str) -> Address:
    """Parses a sender for a header. Raises `ValueError` for more than one mailbox and for line breaks."""
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
