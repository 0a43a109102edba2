"""Codes that fans name: guessing is limited per fan, over all that codes open.

A code that opens nothing is a wrong one, also if a promo code of that name exists: pages send one code for everything.
Naming the same wrong code again is no new try, so a page may send it with every request.
"""

import math
import time

from cachetools import LRUCache

from services.inventory.layout.layout import Layout
from shared.contracts.fields import code_key
from shared.errors.problems import TooManyWrongCodes
from shared.security.limits import Buckets

TOO_MANY = "You tried several codes that open nothing here. Wait before you try another, or go on without a code."
AT_ONCE, PAUSE_S = 10, 30.0


class CodeTries:
    """How many wrong codes each fan has tried of late."""

    def __init__(self, *, keys_max: int, processes: int = 1) -> None:
        self._wrong = Buckets(per_s=1 / PAUSE_S, burst=AT_ONCE, keys_max=keys_max, shared_by=processes)
        self._last: LRUCache[tuple[str, str], str] = LRUCache(keys_max)

    def require(self, layout: Layout, holder: str, typed: str) -> None:
        """Raises `TooManyWrongCodes` if this holder has tried too many wrong codes, whatever this one is."""
        who, code = (layout.event_id, holder), code_key(typed)
        if not layout.asks_for_codes or self._last.get(who) == code:
            return
        now_s = time.monotonic()
        if (wait_s := self._wrong.wait_s(who, now_s=now_s)) > 0:
            raise TooManyWrongCodes(TOO_MANY, retry_after_s=math.ceil(wait_s))
        if not layout.types.opens(typed) and not layout.exclusive.opens(typed):
            self._wrong.take(who, now_s=now_s)
            self._last[who] = code
