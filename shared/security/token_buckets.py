"""Token buckets by key, in the memory of one process. Processes that share a limit have a part of each bucket.

A bucket that is full again is forgotten, so that memory grows with those who come, not with those who came. It is
limited, too: a key that is evicted under a flood of others starts with a full bucket again.
"""

from collections import OrderedDict
from collections.abc import Hashable
from math import ceil
from time import monotonic

from shared.errors.problems import TooManyRequests

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
