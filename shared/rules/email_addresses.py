"""Normalises e-mail addresses, so that limits per customer count a mailbox once however it is typed.

Rejected is what only disguises an address: quoted and commented parts, invisible characters, letters of several scripts
in one name, and names of foreign letters that all look Latin. A domain is read by IDNA (UTS 46), so its Unicode form
and its `xn--` form are one.
"""

import re
import unicodedata
from itertools import chain

import idna

_ATOM = re.compile(r"[^\x00-\x20\x7f\"(),:;<>@\[\\\]]+")
_PLAIN_DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
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
    return f"{local}@{_normalize_domain(domain.lower())}"


def _refuse_disguise(local: str) -> None:
    letters = [letter for letter in local if unicodedata.category(letter).startswith("L")]
    scripts = {unicodedata.name(letter, "?").partition(" ")[0] for letter in letters}
    if len(scripts) > 1 and not any(scripts <= together for together in _TOGETHER):
        raise ValueError("the name in the address mixes letters of several scripts")
    if letters and _LATIN_LOOKALIKES.issuperset(letters):
        raise ValueError("the name in the address uses letters that only look Latin")


def _normalize_domain(typed: str) -> str:
    domain = typed.replace("\u3002", ".").removesuffix(".")
    if _PLAIN_DOMAIN.fullmatch(domain) and "xn--" not in domain:
        return domain
    try:
        return idna.encode(domain, uts46=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError) as wrong:
        raise ValueError("the domain of the address is not valid") from wrong
