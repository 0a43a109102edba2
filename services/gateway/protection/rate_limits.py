"""Limits of this process, behind the balancer's: a call too many is refused before anybody is asked about it.

Generous on purpose: hundreds of fans may share an address, and one fan may have twenty tabs.
"""

import math
import time

from starlette.types import Scope

from services.gateway.metrics import REFUSED
from services.gateway.settings import Settings
from shared.security.token_buckets import Buckets
from shared.web.client_address import client_address
from shared.web.problems import TooManyRequests


class RateLimits:
    """What one fan and what one address may ask of this process."""

    def __init__(self, settings: Settings) -> None:
        self._trusted = settings.trusted_proxies
        self._fans = Buckets(
            per_s=settings.identity_calls_per_s,
            burst=settings.identity_calls_burst,
            keys_max=settings.rate_limit_keys_max,
        )
        self._addresses = Buckets(
            per_s=settings.address_joins_per_s,
            burst=settings.address_joins_burst,
            keys_max=settings.rate_limit_keys_max,
        )

    def fan(self, event_id: str, holder: str) -> None:
        """Raises `TooManyRequests` when this holder asks far more often than `poll_after_ms` says."""
        _refuse(self._fans.take((event_id, holder), now_s=time.monotonic()), "fan")

    def address_of(self, scope: Scope) -> str | None:
        """What this request is counted under; nothing when only proxies of ours are known."""
        return client_address(scope, self._trusted)

    def address(self, scope: Scope) -> None:
        """Raises `TooManyRequests` when this address brings more new fans than an address has."""
        address = self.address_of(scope)
        if address is not None:
            _refuse(self._addresses.take(address, now_s=time.monotonic()), "address")


def _refuse(wait_s: float, limit: str) -> None:
    if wait_s > 0:
        REFUSED.labels(limit).inc()
        raise TooManyRequests(retry_after_s=math.ceil(wait_s))
