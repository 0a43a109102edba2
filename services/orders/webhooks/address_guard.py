"""SSRF guard of webhooks: they are sent to public addresses only.

A name is resolved here and the connection goes to the address that was checked, so a name that resolves differently a
moment later (DNS rebinding) leads nowhere else.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
ADDRESSES_MAX = 3
NAT64 = IPv6Network("64:ff9b::/96")


class AddressRefused(Exception):
    """A webhook may not be sent to this address; the message says why."""


class SsrfGuard:
    """Resolves names on threads of its own: a name server that hangs delays webhooks and nothing else."""

    def __init__(self, threads_max: int) -> None:
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="webhook-dns")

    async def resolve_public(self, host: str, port: int) -> list[str]:
        """Every address of this name, in the order this machine would try them. Raises `OSError`."""
        lookup = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, lookup)
        return [str(sockaddr[0]) for *_, sockaddr in found]

    def close(self) -> None:
        """Pending lookups are abandoned."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def resolve_allowed(host: str, port: int, *, loopback: bool, resolve: Resolve) -> list[str]:
    """The first addresses of `host` that may be connected to. Raises `AddressRefused`, `OSError`."""
    found = [text for text in dict.fromkeys(await resolve(host, port)) if is_allowed(text, loopback=loopback)]
    if not found:
        raise AddressRefused("The address is private, of this machine, or reserved. Send a URL with a public address.")
    return found[:ADDRESSES_MAX]


def is_allowed(text: str, *, loopback: bool) -> bool:
    """Whether an address is public. An IPv4 address within an IPv6 one is checked as the IPv4 address."""
    if "%" in text:
        return False  # a scoped address is valid on one link only
    address = _unwrapped(ip_address(text))
    if address.is_loopback:
        return loopback
    site_local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not (address.is_multicast or address.is_reserved or site_local)


def _unwrapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)
