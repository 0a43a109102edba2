"""What the name of a host says: who can reach it, and its one spelling for mail, sockets and comparisons."""

import re
from ipaddress import ip_address

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
