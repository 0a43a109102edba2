"""Wrong admin keys, counted by client address in one process: after too many, further ones are answered 429.

A right key is never refused: an office whose colleagues mistype theirs, or somebody at the same address who guesses,
locks nobody out. Keys are long and random, so that guessing is hopeless at any rate; the limit makes it seen and cheap.
"""

import math
import time

from prometheus_client import Counter

from shared.runtime.metrics import with_series
from shared.security.token_buckets import Buckets
from shared.web.problems import BadCredential, TooManyWrongCodes

ADDRESSES_MAX = 10_000
UNKNOWN_ADDRESS = "unknown"
REFUSED = with_series(
    Counter("admin_keys_refused_total", "Wrong admin keys, sessions and links: wrong, limited.", ["outcome"]),
    outcome=("wrong", "limited"),
)


class WrongKeys:
    """Refuses wrong keys: the first `per_minute` of an address with what is wrong, further ones as too many."""

    def __init__(self, *, per_minute: int) -> None:
        self._buckets = Buckets(per_s=per_minute / 60, burst=per_minute, keys_max=ADDRESSES_MAX)

    def refusal(self, wrong: BadCredential, address: str | None) -> BadCredential | TooManyWrongCodes:
        """Counts a wrong key; the problem to answer with. All unknown addresses count as one."""
        wait_s = self._buckets.take(address or UNKNOWN_ADDRESS, now_s=time.monotonic())
        REFUSED.labels("limited" if wait_s else "wrong").inc()
        if not wait_s:
            return wrong
        detail = "Too many wrong keys were tried from this address. The right one is accepted at any time."
        return TooManyWrongCodes(detail, retry_after_s=math.ceil(wait_s))
