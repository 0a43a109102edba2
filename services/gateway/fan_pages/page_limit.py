"""How many personal pages one process renders a second for fans without scripts: they cost what others do not."""

import math
import time

from services.gateway.metrics import PLAIN_PAGES
from shared.security.token_buckets import Buckets


class PlainPageLimit:
    """A bucket of one second's pages."""

    def __init__(self, *, per_s: float) -> None:
        self._pages = Buckets(per_s=per_s, burst=max(1, math.ceil(per_s)), keys_max=1)

    def allow(self) -> bool:
        """Takes one page; False if there is none."""
        allowed = self._pages.take("pages", now_s=time.monotonic()) == 0
        PLAIN_PAGES.labels("rendered" if allowed else "busy").inc()
        return allowed
