"""The client's IP address: the peer's, or the one that a trusted proxy reports in `X-Forwarded-For`.

Fans can write anything into that header, so it is read from the right, and only past trusted proxies. Ports, brackets
and quotes, which some gateways write, are no part of an address. Clients whose address cannot be read count as one, so
that limits stay on; `onsale doctor` reports them.
"""

import re
from collections import Counter
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic_settings import NoDecode
from starlette.types import Scope

from shared.runtime.metrics import NAMELESS_CLIENTS

IPV6_ONE_CUSTOMER_BITS = 64
FORWARDED_MAX_CHARS = 1_024
UNREADABLE = "unreadable"
Nameless = Literal["unreadable", "absent"]
_address = re.compile(
    r'"?(?:\[([0-9A-Fa-f:.]+)(?:%[^\]]*)?\](?::[0-9]*)?|([0-9.]+):[0-9]*|([0-9A-Fa-f:.]+)(?:%.*?)?)"?'
)


class Networks:
    """Networks, written `10.0.0.0/8,::1/128`; recent lookups are cached. `nameless` counts how often a request
    through them named no client, by kind, and `nameless_from` is the last proxy.
    """

    def __init__(self, text: str) -> None:
        self.networks: list[IPv4Network | IPv6Network] = [
            ip_network(part.strip()) for part in text.split(",") if part.strip()
        ]
        self.customer = lru_cache(maxsize=16_384)(self._customer)
        self.nameless, self.nameless_from = Counter[str](), ""

    def _customer(self, text: str) -> str | None:
        """The key to count an address under (IPv6: its /64); `None` for a trusted one. Raises `ValueError`."""
        address = ip_address(text)
        if address.version == 6 and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in self.networks if network.version == address.version):
            return None
        return (
            str(ip_network((address, IPV6_ONE_CUSTOMER_BITS), strict=False)) if address.version == 6 else str(address)
        )

    def record_nameless(self, kind: Nameless, proxy: str) -> None:
        NAMELESS_CLIENTS.labels(kind).inc()
        self.nameless[kind] += 1
        self.nameless_from = proxy


def _networks(value: Any) -> Any:
    return Networks(value) if isinstance(value, str) else value


NetworksSetting = Annotated[Networks, NoDecode, BeforeValidator(_networks)]
LOOPBACK = Networks("127.0.0.0/8,::1/128")


def bare_address(text: str) -> str:
    """The address of `203.0.113.9:51234`, `"[2001:db8::1]:443"` or `fe80::1%eth0`; text without one as it is."""
    found = _address.fullmatch(text.strip())
    return next(filter(None, found.groups())) if found else text


def client_address(scope: Scope, trusted: Networks) -> str | None:
    """The nearest address that is not a trusted proxy; `None` for our own networks, which are not limited, and
    `UNREADABLE` for a client whom a proxy does not name.
    """
    peer = scope.get("client")
    proxy = bare_address(peer[0]) if peer else "a socket"
    try:
        if (customer := trusted.customer(proxy)) is not None:
            return customer
        forwarded = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        if not forwarded and LOOPBACK.customer(proxy) is None:  # this machine itself, or a proxy on it
            trusted.record_nameless("absent", proxy)
            return None
        for text in reversed(b",".join(forwarded)[-FORWARDED_MAX_CHARS:].decode("latin-1").split(",")):
            if (customer := trusted.customer(bare_address(text))) is not None:
                return customer
    except ValueError:  # trusted proxies append addresses only: left of anything else, nothing is trusted
        trusted.record_nameless("unreadable", proxy)
        return UNREADABLE
    return None
