"""Limits of this process, behind the balancer's: a call too many is refused before anybody is asked about it.

Generous on purpose: thousands of fans may share an address, and one fan may have twenty tabs. Memory is bounded; who
is forgotten under a flood of strangers starts with a full bucket.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Hashable

from starlette.types import Scope

from services.gateway.client_address import client_address
from services.gateway.metrics import REFUSED
from services.gateway.settings import Settings
from shared.problems import TooManyRequests

ROUNDING_S = 1e-6


class Buckets:
    """Token buckets by key, each kept as the one time at which it is full again."""

    def __init__(self, *, per_s: float, burst: int, keys_max: int) -> None:
        self._token_s = 1 / per_s
        self._slack_s = (burst - 1) / per_s + ROUNDING_S
        self._keys_max = keys_max
        self._full_at_s: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at_s)

    def take(self, key: Hashable, *, now_s: float) -> float:
        """Takes a token and answers 0, or leaves it and answers the seconds until there is one."""
        full_at_s = max(self._full_at_s.get(key, now_s), now_s)
        wait_s = full_at_s - now_s - self._slack_s
        self._full_at_s[key] = full_at_s if wait_s > 0 else full_at_s + self._token_s
        self._full_at_s.move_to_end(key)
        if len(self._full_at_s) > self._keys_max:
            self._full_at_s.popitem(last=False)
        return max(0.0, wait_s)


class Limits:
    """What one fan and what one address may ask of this process."""

    def __init__(self, settings: Settings) -> None:
        self._trusted = settings.trusted_proxies
        self._fans = Buckets(
            per_s=settings.identity_calls_per_s, burst=settings.identity_calls_burst, keys_max=settings.limited_max
        )
        self._addresses = Buckets(
            per_s=settings.address_joins_per_s, burst=settings.address_joins_burst, keys_max=settings.limited_max
        )

    def fan(self, event_id: str, holder: str) -> None:
        """Raises `TooManyRequests` when this holder asks far more often than `poll_after_ms` says."""
        _refuse(self._fans.take((event_id, holder), now_s=time.monotonic()), "fan")

    def address(self, scope: Scope) -> None:
        """Raises `TooManyRequests` when this address brings more new fans than an address has."""
        address = client_address(scope, self._trusted)
        if address is not None:
            _refuse(self._addresses.take(address, now_s=time.monotonic()), "address")


def _refuse(wait_s: float, limit: str) -> None:
    if wait_s > 0:
        REFUSED.labels(limit).inc()
        raise TooManyRequests(retry_after_s=math.ceil(wait_s))
