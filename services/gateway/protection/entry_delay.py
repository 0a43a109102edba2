"""Entry delay: what fans without scripts give in place of a proof of work, a wait before they join.

The first join is answered with a signed not-before time, as far away as the proof would take on a slow phone. It is
made for one holder, who is derived from the browser's secret cookie, so one wait is good for one place, however often
and at whichever process the form is sent. An attacker who waits needs no processor, so only `WAITS_MAX` fans of one
address wait at a time: fewer places a second than one core of a desktop computer proves.
"""

import hmac
import math
import re
import time

from cachetools import LRUCache

from services.gateway.metrics import ENTRY_DELAYS
from services.gateway.problems import EntryDelayed
from shared.contracts.queue import JoinRequest
from shared.errors.problems import TooManyRequests
from shared.security.tokens import Keyring, b64

SLOW_PHONE_HASHES_PER_S, DELAY_MAX_S = 20_000, 30
WAITS_MAX = 16
USE_WITHIN_S = 300
_token = re.compile(r"([A-Za-z0-9_-]{1,32})\.([0-9]{1,12})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})")


def delay_s(hashes: int) -> int:
    """How long a slow phone computes so many hashes, at most `DELAY_MAX_S`."""
    return max(1, min(DELAY_MAX_S, math.ceil(hashes / SLOW_PHONE_HASHES_PER_S)))


class EntryDelays:
    """Signs not-before times and checks them; every process with the same keys checks those of the others."""

    def __init__(self, keys: Keyring, *, addresses_max: int, processes: int = 1) -> None:
        self._keys = keys
        self._waits = WaitsOfAddresses(addresses_max=addresses_max, processes=processes)

    def require(self, event_id: str, fan: JoinRequest, token: str | None, *, hashes: int, address: str | None) -> None:
        """Raises `EntryDelayed` with a token until its time has come, `TooManyRequests` if too many of the address
        wait. A token that was forged, has expired or was made for another fan counts as none.
        """
        not_before_s = self._not_before_s(event_id, fan.holder, token)
        if not_before_s is not None and time.time() >= not_before_s:
            ENTRY_DELAYS.labels("waited").inc()
            return
        if not_before_s is None:
            ENTRY_DELAYS.labels("started" if token is None else "invalid").inc()
            lasts_s = delay_s(hashes)
            self._waits.begin(address, lasts_s=lasts_s)
            not_before_s = math.ceil(time.time()) + lasts_s
            token = self._sign(event_id, fan.holder, not_before_s)
        else:
            ENTRY_DELAYS.labels("early").inc()
        raise EntryDelayed(entry=token, retry_after_s=max(1, math.ceil(not_before_s - time.time())))

    def left_s(self, token: str) -> int:
        """Seconds until the time that a token names, for the page that shows it: it is not checked."""
        found = _token.fullmatch(token)
        return max(0, math.ceil(min(int(found[2]) - time.time(), DELAY_MAX_S + 1))) if found else 0

    def _sign(self, event_id: str, holder: str, not_before_s: int) -> str:
        kid, expires_s = self._keys.kid, not_before_s + USE_WITHIN_S
        return f"{kid}.{not_before_s}.{expires_s}.{self._mac(kid, event_id, holder, f'{not_before_s}.{expires_s}')}"

    def _mac(self, kid: str, event_id: str, holder: str, times: str) -> str:
        return b64(self._keys.mac("entry-delay", event_id, holder, times, kid=kid))

    def _not_before_s(self, event_id: str, holder: str, token: str | None) -> int | None:
        found = _token.fullmatch(token or "")
        if found is None:
            return None
        kid, not_before_s, expires_s, mac = found.groups()
        if kid not in self._keys.keys or int(expires_s) < time.time():
            return None
        genuine = self._mac(kid, event_id, holder, f"{not_before_s}.{expires_s}")
        return int(not_before_s) if hmac.compare_digest(mac, genuine) else None


class WaitsOfAddresses:
    """How many fans of an address wait at a time: at most this process' part of `WAITS_MAX`, each for its own delay."""

    def __init__(self, *, addresses_max: int, processes: int = 1) -> None:
        self._most = math.ceil(WAITS_MAX / processes)
        self._ends: LRUCache[str | None, list[float]] = LRUCache(addresses_max)

    def begin(self, address: str | None, *, lasts_s: int) -> None:
        """Raises `TooManyRequests`. Fans whose address is unknown count as one address."""
        now_s = time.monotonic()
        ends = [end_s for end_s in self._ends.get(address, []) if end_s > now_s]
        if len(ends) >= self._most:
            self._ends[address] = ends
            raise TooManyRequests(retry_after_s=max(1, math.ceil(min(ends) - now_s)))
        self._ends[address] = [*ends, now_s + lasts_s]
