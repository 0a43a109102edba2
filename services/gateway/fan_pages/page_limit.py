"""How many personal pages one process renders a second for fans without scripts: they cost what others do not.

An address has a share of them, so that no client takes the pages of all others.
"""

import math
import time

from services.gateway.metrics import PLAIN_PAGES
from shared.security.token_buckets import Buckets

ADDRESS_SHARE = 0.2


class PlainPageLimit:
    """A bucket of one second's pages, and one for each address."""

    def __init__(self, *, per_s: float, addresses_max: int) -> None:
        share_per_s = per_s * ADDRESS_SHARE
        self._pages = Buckets(per_s=per_s, burst=max(1, math.ceil(per_s)), keys_max=1)
        self._shares = Buckets(per_s=share_per_s, burst=max(1, math.ceil(share_per_s)), keys_max=addresses_max)

    def allow(self, address: str | None) -> bool:
        """Takes one page; False if there is none, for this address or at all. Our own networks have no share."""
        now_s = time.monotonic()
        allowed = address is None or self._shares.take(address, now_s=now_s) == 0
        if allowed and self._pages.take("pages", now_s=now_s) > 0:
            allowed = False
            if address is not None:
                self._shares.give_back(address, now_s=now_s)
        PLAIN_PAGES.labels("rendered" if allowed else "busy").inc()
        return allowed
