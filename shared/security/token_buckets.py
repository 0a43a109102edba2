"""Token buckets by key, in the memory of one process.

Memory is bounded; who is forgotten under a flood of strangers starts with a full bucket.
"""

from collections import OrderedDict
from collections.abc import Hashable

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

    def wait_s(self, key: Hashable, *, now_s: float) -> float:
        """Seconds until there is a token; none is taken."""
        return max(0.0, self._full_at_s.get(key, now_s) - now_s - self._slack_s)
