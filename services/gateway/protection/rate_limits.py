"""Rate limits of fans and addresses, after those of the load balancer: excess calls are refused before any other work.

They are generous on purpose: hundreds of fans may share an address, and one fan may have twenty tabs.
"""

import math
import time
from functools import partial

from starlette.types import Scope

from services.gateway.metrics import RATE_LIMITED
from services.gateway.settings import Settings
from services.gateway.tuning import DEFAULTS
from shared.errors.problems import TooManyRequests
from shared.security.limits import Buckets, client_address

ADDRESS = "onsale.address"  # under which the scope of a request has the client's


class RateLimits:
    """Rate limits per fan and per client address."""

    def __init__(self, settings: Settings) -> None:
        self._trusted_proxies = settings.trusted_proxies
        buckets = partial(Buckets, keys_max=DEFAULTS.rate_limit_keys_max, shared_by=settings.processes)
        self._fans = buckets(per_s=settings.fan_calls_per_s)
        self._addresses = buckets(per_s=settings.address_joins_per_s)

    def check_fan(self, event_id: str, holder: str) -> None:
        """Raises `TooManyRequests` when this holder calls far more often than `poll_after_ms` says."""
        require_token(self._fans.take((event_id, holder), now_s=time.monotonic()), "fan")

    def address_of(self, scope: Scope) -> str | None:
        """The client address that this request is counted under; `None` if only our own proxies are known. A join asks
        for it at each of its steps: it is read once.
        """
        if ADDRESS not in scope:
            scope[ADDRESS] = client_address(scope, self._trusted_proxies)
        address: str | None = scope[ADDRESS]
        return address

    def check_address(self, scope: Scope) -> None:
        """Raises `TooManyRequests` when this address joins more fans than the limit."""
        address = self.address_of(scope)
        if address is not None:
            require_token(self._addresses.take(address, now_s=time.monotonic()), "address")


def require_token(wait_s: float, limit: str) -> None:
    """Raises `TooManyRequests`, and counts it for this limit, unless the wait is over."""
    if wait_s > 0:
        RATE_LIMITED.labels(limit).inc()
        raise TooManyRequests(retry_after_s=math.ceil(wait_s))
