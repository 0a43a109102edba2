"""The client's IP address: the peer's, or the one that a trusted proxy reports in `X-Forwarded-For`.

Fans can write anything into that header, so it is read from the right, and only past trusted proxies.
"""

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_settings import NoDecode
from starlette.types import Scope

IPV6_ONE_CUSTOMER_BITS = 64
FORWARDED_MAX_CHARS = 1_024


class Networks:
    """Networks, written `10.0.0.0/8,::1/128`; recent lookups are cached."""

    def __init__(self, text: str) -> None:
        self.networks: list[IPv4Network | IPv6Network] = [
            ip_network(part.strip()) for part in text.split(",") if part.strip()
        ]
        self.customer = lru_cache(maxsize=16_384)(self._customer)

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


def _networks(value: Any) -> Any:
    return Networks(value) if isinstance(value, str) else value


NetworksSetting = Annotated[Networks, NoDecode, BeforeValidator(_networks)]
LOOPBACK = Networks("127.0.0.0/8,::1/128")


def client_address(scope: Scope, trusted: Networks) -> str | None:
    """The nearest address that is not a trusted proxy; `None` if it is unknown, and then not limited."""
    peer = scope.get("client")
    try:
        if peer is None or (customer := trusted.customer(peer[0])) is not None:
            return customer if peer is not None else None
        forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
        for text in reversed(forwarded[-FORWARDED_MAX_CHARS:].decode("latin-1").split(",")):
            if text.strip() and (customer := trusted.customer(text.strip())) is not None:
                return customer
    except ValueError:  # trusted proxies append addresses only: left of anything else, nothing is trusted
        return None
    return None
