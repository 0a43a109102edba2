"""Limits guessing of codes: after too many wrong codes, further ones are refused for a while without a look-up.

A look-up takes a token first, which comes back unless the code was wrong: guesses sent at once count like guesses sent
one after the other. While tokens are out, further look-ups of the key wait for them: fans who send right codes at
the same moment are not refused.

The key is an event whose fans are unknown, one fan, or an address; others are not affected.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from math import ceil
from time import monotonic

from shared.errors.problems import Overloaded, TooManyWrongCodes
from shared.security.token_buckets import Buckets

KEYS_MAX = 10_000
WAITING_MAX = 4_096  # per key
ADDRESS_AT_ONCE, ADDRESS_PER_MINUTE = 50, 30.0  # of one event, by one address


@dataclass(slots=True)
class Guess:
    """One look-up of a code; whoever looks up says whether it was wrong."""

    wrong: bool = False


class GuessLimiter:
    """A token bucket per key: `at_once` wrong codes in a burst, then `per_s`."""

    def __init__(self, *, per_s: float, at_once: float, shared_by: int = 1) -> None:
        self._buckets = Buckets(per_s=per_s, burst=max(1, int(at_once)), keys_max=KEYS_MAX, shared_by=shared_by)
        self._under_way = Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[bool]]] = {}

    @asynccontextmanager
    async def guess(self, key: str, guess: Guess | None = None) -> AsyncIterator[Guess]:
        """Around a look-up. Two limiters share one `guess`. A look-up that is cancelled counts as wrong. Raises
        `TooManyWrongCodes`, `Overloaded`.
        """
        await self._take(key)
        guess = guess or Guess()
        try:
            yield guess
        except asyncio.CancelledError:
            guess.wrong = True
            raise
        finally:
            self._end(key, wrong=guess.wrong)

    async def _take(self, key: str) -> None:
        wait_s = self._buckets.take(key, now_s=monotonic())
        if wait_s > 0 and not await self._handed_over(key):
            raise TooManyWrongCodes(retry_after_s=ceil(wait_s))
        if wait_s == 0:
            self._under_way[key] += 1

    async def _handed_over(self, key: str) -> bool:
        """Waits for the token of a look-up that is under way; whether there was one."""
        if key not in self._under_way:
            return False
        waiting = self._waiting.setdefault(key, deque())
        if len(waiting) >= WAITING_MAX:
            raise Overloaded
        token: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting.append(token)
        try:
            return await token
        except asyncio.CancelledError:
            if token.done() and not token.cancelled() and token.result():
                self._end(key, wrong=False)
            raise

    def _end(self, key: str, *, wrong: bool) -> None:
        if not wrong:
            if self._hand_over(key):
                return
            self._buckets.give_back(key, now_s=monotonic())
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]
            for token in self._waiting.pop(key, ()):
                if not token.done():
                    token.set_result(False)

    def _hand_over(self, key: str) -> bool:
        waiting = self._waiting.get(key, deque())
        while waiting:
            token = waiting.popleft()
            if not token.done():
                token.set_result(True)
                return True
        return False


class AddressGuessLimiter:
    """The same per event and client address, whatever the fan or sign-in. Our own networks are not counted."""

    def __init__(self, *, shared_by: int = 1) -> None:
        self._limiter = GuessLimiter(per_s=ADDRESS_PER_MINUTE / 60, at_once=ADDRESS_AT_ONCE, shared_by=shared_by)

    def guess(self, event_id: str, address: str | None) -> AbstractAsyncContextManager[Guess]:
        """Around a look-up. Raises `TooManyWrongCodes`, `Overloaded`."""
        return nullcontext(Guess()) if address is None else self._limiter.guess(f"{event_id} {address}")
