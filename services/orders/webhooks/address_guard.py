"""Where a webhook may be sent: public addresses only, whatever a name resolves to, and only to what was checked.

A name is resolved here and the connection goes to the address that passed, so that a name which changes its mind in
between leads nowhere else.
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
    """Webhooks go to public addresses only."""


class SsrfGuard:
    """Resolves on threads of its own: a name server that hangs holds up nobody but webhooks."""

    def __init__(self, threads_max: int) -> None:
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="hooks-names")

    async def resolve_public(self, host: str, port: int) -> list[str]:
        """Every address of this name, as this machine would try them. Raises `OSError`."""
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        return [str(sockaddr[0]) for *_, sockaddr in found]

    def close(self) -> None:
        """Whoever still asks is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def public_only(host: str, port: int, *, loopback: bool, resolve: Resolve) -> list[str]:
    """The first addresses of `host` that may be connected to. Raises `AddressRefused`, `OSError`."""
    found = [text for text in dict.fromkeys(await resolve(host, port)) if may_reach(text, loopback=loopback)]
    if not found:
        raise AddressRefused("The address is private, of this machine, or reserved.")
    return found[:ADDRESSES_MAX]


def may_reach(text: str, *, loopback: bool) -> bool:
    """Whether an address is public; an IPv4 address within an IPv6 one is judged as itself."""
    if "%" in text:
        return False  # a scope: of this link only
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
