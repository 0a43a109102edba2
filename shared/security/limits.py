"""Who calls, and how often: the client's IP address, token buckets by key, limits on guessing codes and on the holds of
one address.

The address is the peer's, or the one that a trusted proxy reports in `X-Forwarded-For`. Fans can write anything into
that header, so it is read from the right, and only past trusted proxies. Ports, brackets and quotes, which some
gateways write, are no part of an address. Clients whose address cannot be read count as one, so that limits stay on;
`onsale doctor` reports them.

Buckets are in the memory of one process. Processes that share a limit have a part of each bucket. A bucket that is full
again is forgotten, so that memory grows with those who come, not with those who came. It is limited, too: a key that is
evicted under a flood of others starts with a full bucket again.

After too many wrong codes, further ones are refused for a while without a look-up. A look-up takes a token first, which
comes back unless the code was wrong: guesses sent at once count like guesses sent one after the other. While tokens are
out, further look-ups of the key wait for them: fans who send right codes at the same moment are not refused. The key is
an event whose fans are unknown, one fan, or an address; others are not affected.
"""

import asyncio
import re
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import takewhile
from math import ceil
from time import monotonic
from typing import Annotated, Any, Literal

from cachetools import LRUCache
from pydantic import BeforeValidator
from pydantic_settings import NoDecode
from starlette.types import Scope

from shared.errors.problems import Overloaded, TooManyRequests, TooManyWrongCodes
from shared.runtime.clock import now_ms
from shared.runtime.metrics import NAMELESS_CLIENTS

# -- addresses ---------------------------------------------------------------------------------------------------------

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


# -- token buckets -----------------------------------------------------------------------------------------------------

ROUNDING_S = 1e-6
BURST_S = 10  # a bucket holds what so many seconds add, if it is not told another size
FORGOTTEN_MAX = 2  # for each that is set, so that fewer and fewer are left


class Buckets:
    """Token buckets by key; a bucket is stored as the time at which it will be full (GCRA)."""

    def __init__(self, *, per_s: float, burst: int | None = None, keys_max: int, shared_by: int = 1) -> None:
        burst = max(1, round(per_s * BURST_S)) if burst is None else burst
        per_s, burst = per_s / shared_by, ceil(burst / shared_by)
        self._token_s = 1 / per_s
        self._slack_s = (burst - 1) / per_s + ROUNDING_S
        self._debt_max_s = 2 * burst / per_s
        self._keys_max = keys_max
        self._full_at_s: OrderedDict[Hashable, float] = OrderedDict()  # the longest silent first

    def __len__(self) -> int:
        return len(self._full_at_s)

    def take(self, key: Hashable, *, now_s: float) -> float:
        """Takes a token and returns 0, or takes none and returns the seconds until there is one."""
        full_at_s = max(self._full_at_s.get(key, now_s), now_s)
        wait_s = full_at_s - now_s - self._slack_s
        self._set(key, full_at_s if wait_s > 0 else full_at_s + self._token_s, now_s)
        return max(0.0, wait_s)

    def charge(self, key: Hashable, *, now_s: float) -> float:
        """Takes a token whether there is one or not: a bucket is overdrawn by at most its size. Returns by how many
        seconds this delays that the bucket is full: fewer than a token's once it is overdrawn so far.
        """
        full_at_s = max(self._full_at_s.get(key, now_s), now_s)
        charged_at_s = min(full_at_s + self._token_s, now_s + self._debt_max_s)
        self._set(key, charged_at_s, now_s)
        return max(0.0, charged_at_s - full_at_s)

    def give_back(self, key: Hashable, *, now_s: float, taken_s: float | None = None) -> None:
        """Puts back a token that was taken before it was known whether it counts. `taken_s`: what `charge` returned."""
        full_at_s = self._full_at_s.get(key, now_s) - (self._token_s if taken_s is None else taken_s)
        if full_at_s > now_s:
            self._full_at_s[key] = full_at_s
        else:
            self._full_at_s.pop(key, None)

    def wait_s(self, key: Hashable, *, now_s: float) -> float:
        """The seconds until there is a token; takes none."""
        return max(0.0, self._full_at_s.get(key, now_s) - now_s - self._slack_s)

    def _set(self, key: Hashable, full_at_s: float, now_s: float) -> None:
        buckets = self._full_at_s
        buckets[key] = full_at_s
        buckets.move_to_end(key)
        for _ in range(FORGOTTEN_MAX):
            if len(buckets) <= self._keys_max and next(iter(buckets.values())) > now_s:
                break
            buckets.popitem(last=False)


class FanLimit:
    """Calls of one fan, whatever they ask. The key is what the credential in use names, after it was
    verified: another cookie beside it changes nothing.
    """

    def __init__(self, *, per_s: float, burst: int | None = None, keys_max: int, shared_by: int = 1) -> None:
        self._calls = Buckets(per_s=per_s, burst=burst, keys_max=keys_max, shared_by=shared_by)

    def check(self, *key: str) -> None:
        """Raises `TooManyRequests`."""
        if (wait_s := self._calls.take(key, now_s=monotonic())) > 0:
            raise TooManyRequests(retry_after_s=ceil(wait_s))


# -- codes -------------------------------------------------------------------------------------------------------------

KEYS_MAX = 10_000
WAITING_MAX = 4_096  # per key
ADDRESS_AT_ONCE, ADDRESS_PER_MINUTE = 50, 30.0  # of one event, by one address


@dataclass(slots=True)
class Guess:
    """One look-up of a code; whoever looks up says whether it was wrong."""

    wrong: bool = False


class GuessLimiter:
    """A token bucket per key: `at_once` wrong codes in a burst, then `per_s`."""

    def __init__(self, *, per_s: float, at_once: float, shared_by: int = 1) -> None:
        self._buckets = Buckets(per_s=per_s, burst=max(1, int(at_once)), keys_max=KEYS_MAX, shared_by=shared_by)
        self._under_way = Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[bool]]] = {}

    @asynccontextmanager
    async def guess(self, key: str, guess: Guess | None = None) -> AsyncIterator[Guess]:
        """Around a look-up. Two limiters share one `guess`. A look-up that is cancelled counts as wrong. Raises
        `TooManyWrongCodes`, `Overloaded`.
        """
        await self._take(key)
        guess = guess or Guess()
        try:
            yield guess
        except asyncio.CancelledError:
            guess.wrong = True
            raise
        finally:
            self._end(key, wrong=guess.wrong)

    async def _take(self, key: str) -> None:
        wait_s = self._buckets.take(key, now_s=monotonic())
        if wait_s > 0 and not await self._handed_over(key):
            raise TooManyWrongCodes(retry_after_s=ceil(wait_s))
        if wait_s == 0:
            self._under_way[key] += 1

    async def _handed_over(self, key: str) -> bool:
        """Waits for the token of a look-up that is under way; whether there was one."""
        if key not in self._under_way:
            return False
        waiting = self._waiting.setdefault(key, deque())
        if len(waiting) >= WAITING_MAX:
            raise Overloaded
        token: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting.append(token)
        try:
            return await token
        except asyncio.CancelledError:
            if token.done() and not token.cancelled() and token.result():
                self._end(key, wrong=False)
            raise

    def _end(self, key: str, *, wrong: bool) -> None:
        if not wrong:
            if self._hand_over(key):
                return
            self._buckets.give_back(key, now_s=monotonic())
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]
            for token in self._waiting.pop(key, ()):
                if not token.done():
                    token.set_result(False)

    def _hand_over(self, key: str) -> bool:
        waiting = self._waiting.get(key, deque())
        while waiting:
            token = waiting.popleft()
            if not token.done():
                token.set_result(True)
                return True
        return False


class AddressGuessLimiter:
    """The same per event and client address, whatever the fan or sign-in. Our own networks are not counted."""

    def __init__(self, *, shared_by: int = 1) -> None:
        self._limiter = GuessLimiter(per_s=ADDRESS_PER_MINUTE / 60, at_once=ADDRESS_AT_ONCE, shared_by=shared_by)

    def guess(self, event_id: str, address: str | None) -> AbstractAsyncContextManager[Guess]:
        """Around a look-up. Raises `TooManyWrongCodes`, `Overloaded`."""
        return nullcontext(Guess()) if address is None else self._limiter.guess(f"{event_id} {address}")


# -- holds ------------------------------------------------------------------------------------------------------------

HOLDS_RETRY_S = 5


@dataclass(slots=True)
class CountedHold:
    """One hold at one address: until when it counts, whether it is held, and how many requests for it are under way."""

    until_s: float
    is_held: bool = False
    requests_n: int = 0


class AddressHolds:
    """Live holds by address, so that one address cannot hold most of the stock; the least recently used address is
    dropped first. `most` 0 disables the limit.

    A hold counts from its request until it is released or its time is over, also if it was bought meanwhile. A request
    that is refused takes back its own count alone: the hold that it repeats, or another request for the same hold, goes
    on counting.
    """

    def __init__(self, *, most: int, keys_max: int) -> None:
        self._most = most
        self._live: LRUCache[str, dict[str, CountedHold]] = LRUCache(keys_max)
        self._address_of: LRUCache[str, str] = LRUCache(keys_max)

    @contextmanager
    def counted(self, address: str | None, reservation_id: str, *, lasts_s: float) -> Iterator[CountedHold]:
        """Counts a hold while it is requested, and afterwards if the request sets `is_held`; once per reservation.
        Raises `TooManyRequests`.
        """
        if address is None or not self._most:
            yield CountedHold(0)
            return
        counted = self._count(address, reservation_id, lasts_s)
        counted.requests_n += 1
        try:
            yield counted
        finally:
            counted.requests_n -= 1
            if not counted.is_held and not counted.requests_n:
                self._forget(address, reservation_id)

    def _count(self, address: str, reservation_id: str, lasts_s: float) -> CountedHold:
        now_s, live = monotonic(), self._live.setdefault(address, {})
        for name in list(takewhile(lambda name: live[name].until_s <= now_s, live)):  # the oldest are first
            del live[name]
        if reservation_id not in live and len(live) >= self._most:
            live = self._live[address] = {name: hold for name, hold in live.items() if hold.until_s > now_s}
            if len(live) >= self._most:
                raise TooManyRequests(
                    "Your network has too many holds. Try again when some have ended.", retry_after_s=HOLDS_RETRY_S
                )
        counted = live.setdefault(reservation_id, CountedHold(0))
        counted.until_s = max(counted.until_s, now_s + lasts_s)
        self._address_of.setdefault(reservation_id, address)
        return counted

    def prolong(self, reservation_id: str, *, until_ms: int) -> None:
        """Its time was extended: by its fan, or by the order that pays for it."""
        live = self._live.get(self._address_of.get(reservation_id, ""), {})
        if counted := live.pop(reservation_id, None):
            counted.until_s = max(counted.until_s, monotonic() + (until_ms - now_ms()) / 1000)
            live[reservation_id] = counted

    def discard(self, reservation_id: str) -> None:
        """Uncounts a hold that was released."""
        self._forget(self._address_of.get(reservation_id, ""), reservation_id)

    def _forget(self, address: str, reservation_id: str) -> None:
        self._live.get(address, {}).pop(reservation_id, None)
        if self._address_of.get(reservation_id) == address:
            del self._address_of[reservation_id]
