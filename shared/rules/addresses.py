"""E-mail addresses and names of hosts. An address has one spelling, so that limits count a mailbox once however it is
typed; a well-known domain that was probably meant is suggested. A host's name says who can reach it.

Rejected is what only disguises an address: quoted and commented parts, invisible characters, letters of several scripts
in one name, and names of foreign letters that all look Latin. A domain is read by IDNA (UTS 46), so its Unicode form
and its `xn--` form are one.
"""

import re
import unicodedata
from ipaddress import ip_address
from itertools import chain

import idna

_PLAIN_DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def ascii_host(host: str) -> str:
    """A name or address of ASCII as it is, another name as `ascii_domain`. Raises `ValueError`."""
    return host if host.isascii() else ascii_domain(host)


def ascii_origin(origin: str) -> str:
    """`https://straße.example:8000` with its name in ASCII: header fields have no other. Raises `ValueError`."""
    if origin.isascii():
        return origin
    scheme, _, host = origin.partition("://")
    name, colon, port = host.partition(":")
    return f"{scheme}://{ascii_domain(name)}{colon}{port}"


def ascii_domain(typed: str) -> str:
    """The domain in lower case and ASCII, by UTS 46 without its transitional rules. Raises `ValueError`.

    Python's own codec `idna` is of 2003: it turns straße.example into strasse.example, which is somebody else's.
    """
    domain = typed.lower().replace("\u3002", ".").removesuffix(".")
    if _PLAIN_DOMAIN.fullmatch(domain) and "xn--" not in domain:
        return domain
    try:
        return idna.encode(domain, uts46=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError) as wrong:
        raise ValueError("the domain of the address is not valid") from wrong


_ATOM = re.compile(r"[^\x00-\x20\x7f\"(),:;<>@\[\\\]]+")
_IGNORABLE = frozenset(
    map(chr, chain((0x34F, 0x3164, 0xFFA0), range(0x115F, 0x1161), range(0x17B4, 0x17B6), range(0x180B, 0x1810),
                   range(0xFE00, 0xFE10), range(0xE0000, 0xE1000)))
)  # fmt: skip
_TOGETHER = ({"CJK", "HIRAGANA", "KATAKANA"}, {"CJK", "HANGUL"}, {"CJK", "BOPOMOFO"})
_LATIN_LOOKALIKES = frozenset("авеԁһіјкӏмнорԛѕтуѵԝхсьαβγεηικνορτυχω")


def normalize_email(typed: str) -> str:
    """The normalised address. Raises `ValueError` with the fault."""
    if any(letter in _IGNORABLE or unicodedata.category(letter) in ("Cf", "Cn", "Co", "Cs") for letter in typed):
        raise ValueError("the address has an invisible character")
    name, at, domain = unicodedata.normalize("NFKC", typed).strip().rpartition("@")
    local = unicodedata.normalize("NFC", name.casefold())
    if not at or not all(map(_ATOM.fullmatch, local.split("."))):
        raise ValueError("write the address as name@example.org, without quotes, comments or double dots")
    if not local.isascii():
        _refuse_disguise(local)
    return f"{local}@{ascii_domain(domain)}"


def _refuse_disguise(local: str) -> None:
    letters = [letter for letter in local if unicodedata.category(letter).startswith("L")]
    scripts = {unicodedata.name(letter, "?").partition(" ")[0] for letter in letters}
    if len(scripts) > 1 and not any(scripts <= together for together in _TOGETHER):
        raise ValueError("the name in the address mixes letters of several scripts")
    if letters and _LATIN_LOOKALIKES.issuperset(letters):
        raise ValueError("the name in the address uses letters that only look Latin")


def spellings(typed: str) -> tuple[str, str]:
    """The address with its domain in ASCII and in Unicode: the two ways in which it is stored. Raises `ValueError`."""
    local, _, domain = typed.strip().rpartition("@")
    name = ascii_domain(domain)
    try:
        return f"{local}@{name}", f"{local}@{idna.decode(name)}"
    except (idna.IDNAError, UnicodeError):
        return f"{local}@{name}", f"{local}@{name}"


def inbox_of(normalized: str) -> str:
    """The inbox that a normalised address most likely leads to: without a tag after `+`, and at Gmail without dots.
    Only for limits whose mistake is harmless: some providers deliver tagged addresses elsewhere.
    """
    local, _, domain = normalized.rpartition("@")
    name = local.partition("+")[0] or local
    if domain in ("gmail.com", "googlemail.com"):
        name, domain = name.replace(".", ""), "gmail.com"
    return f"{name}@{domain}"


# -- likely mistypings -------------------------------------------------------------------------------------------------

_WELL_KNOWN = (
    "gmail.com", "googlemail.com", "yahoo.com", "yahoo.de", "yahoo.fr", "yahoo.es", "yahoo.co.uk", "ymail.com",
    "hotmail.com", "hotmail.de", "hotmail.fr", "hotmail.es", "hotmail.co.uk", "outlook.com", "outlook.de",
    "outlook.fr", "outlook.es", "live.com", "live.de", "live.fr", "live.co.uk", "msn.com", "icloud.com", "me.com",
    "mac.com", "aol.com", "aol.de", "mail.com", "email.com", "proton.me", "protonmail.com", "gmx.de", "gmx.net",
    "gmx.at", "gmx.ch", "gmx.com", "web.de", "t-online.de", "freenet.de", "posteo.de", "mailbox.org", "orange.fr",
    "wanadoo.fr", "free.fr", "sfr.fr", "laposte.net", "bluewin.ch", "libero.it", "telefonica.net", "comcast.net",
    "btinternet.com",
)  # fmt: skip
_INTERNATIONAL = ("yahoo", "hotmail", "outlook", "live", "gmx", "msn", "aol")  # have domains in many countries
_COUNTRY = re.compile(r"(?:com?\.)?[a-z]{2}")
_SHORT_LABEL = 3  # a letter changed in so short a name is as likely another name


def suggested_address(typed: str) -> str | None:
    """The address that was probably meant, if its domain is nearly a well-known one; None for every other. Both may be
    right: it is a question for who typed it, never a reason to refuse. Raises `ValueError` for an invalid address.
    """
    local, _, domain = typed.strip().rpartition("@")
    name = ascii_domain(domain)
    label, _, ending = name.partition(".")
    if name in _WELL_KNOWN or (
        label in _INTERNATIONAL and _COUNTRY.fullmatch(ending) and ending not in ("co", "cm", "om")
    ):
        return None
    meant = next((known for known in _WELL_KNOWN if _is_mistyped(label, ending, known)), None)
    return f"{local}@{meant}" if meant else None


def _is_mistyped(label: str, ending: str, known: str) -> bool:
    """At most one slip in the name and one in the ending; in a short name only a swap of two neighbours."""
    right, _, right_ending = known.partition(".")
    near = sorted(label) == sorted(right) if len(right) <= _SHORT_LABEL else True
    return near and _is_one_slip(label, right) and _is_one_slip(ending, right_ending)


def _is_one_slip(typed: str, right: str) -> bool:
    """Whether a letter too many, too few or changed, or two neighbours swapped, is all that differs."""
    if typed == right:
        return True
    start = next((n for n, (a, b) in enumerate(zip(typed, right, strict=False)) if a != b), min(len(typed), len(right)))
    left, wanted = typed[start:], right[start:]
    return (
        left[1:] == wanted
        or left == wanted[1:]
        or left[1:] == wanted[1:]
        or (left[2:] == wanted[2:] and left[:2] == wanted[1::-1])
    )
