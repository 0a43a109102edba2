"""A checkout that completes so many purchases a second, and fans who come to it as the line calls them, on the clock of
a queue: what the ceiling on purchases in progress does in a minute is seen in a second.
"""

import random
from collections import deque
from dataclasses import dataclass, field

from shared.process.load import AVERAGED
from tests.queue.conftest import Queue, load_frame

STEP_S, FRAME_S = 0.2, 0.6


@dataclass
class Second:
    """What happened in one second: fans called, purchases done, and the most that checkout had in work."""

    called: int = 0
    done: int = 0
    work: float = 0.0


@dataclass
class Sale:
    """Fans take `reacts_s` to claim after the call, `thinks_s` until they pay; a share never comes. A provider takes
    `provider_s`.
    """

    queue: Queue
    capacity: float
    reacts_s: float = 0.2
    thinks_s: float = 0.4
    stay_away: float = 0.0
    provider_s: float = 0.05
    seed: int = 1
    now_s: float = 0.0
    seconds: list[Second] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    finished: int = 0
    _seen: set[int] = field(default_factory=set)
    _claims: list[tuple[float, int]] = field(default_factory=list)
    _pays: list[tuple[float, int]] = field(default_factory=list)
    _work: deque[tuple[float, int]] = field(default_factory=deque)
    _paid: list[tuple[float, int]] = field(default_factory=list)
    _credit: float = 0.0
    _area: float = 0.0
    _done: int = 0
    _second_s: float = 0.0
    _untold_s: float = 0.0
    _frames: deque[tuple[float, int, float]] = field(default_factory=lambda: deque(maxlen=AVERAGED))

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    async def run(self, seconds: float) -> list[Second]:
        """These seconds."""
        first = len(self.seconds)
        until_s = self.now_s + seconds
        while self.now_s < until_s - STEP_S / 2:
            if not self.seconds or self.now_s >= self._second_s + 1 - STEP_S / 2:
                self.seconds.append(Second())
                self._second_s = self.now_s
            await self._step()
        return self.seconds[first:]

    def pay_at_once(self) -> int:
        """Everybody who is choosing pays now; how many."""
        self._pays = [(self.now_s, n) for _, n in self._pays]
        return len(self._pays)

    async def _step(self) -> None:
        """On a slow machine a step is as long as it takes: the queue's clock does not stand still."""
        before_ms = self.queue.time_ms
        await self.queue.tick(STEP_S)
        step_s = (self.queue.time_ms - before_ms) / 1000
        self.now_s += step_s
        self._untold_s += step_s
        self._call(await self.queue.called())
        claiming = self._due(self._claims)
        if claiming:
            await self.queue.claim(*((n, f"fan-{n}") for n in claiming))
            self._pays += [(self.now_s + self.thinks_s * self._random.uniform(0.5, 1.5), n) for n in claiming]
        self._work.extend((self.now_s, n) for n in self._due(self._pays))
        self._complete(step_s)
        gone = self._due(self._paid)
        if gone:
            await self.queue.leave(*((n, f"fan-{n}") for n in gone))
            self.finished += len(gone)
        if self._untold_s >= FRAME_S:
            await self.tell()

    def _call(self, called: list[int]) -> None:
        new = [n for n in called if n not in self._seen]
        self._seen.update(new)
        self.seconds[-1].called += len(new)
        for n in new:
            if self._random.random() >= self.stay_away:
                self._claims.append((self.now_s + self.reacts_s * self._random.uniform(0.5, 1.5), n))

    def _due(self, waiting: list[tuple[float, int]]) -> list[int]:
        due = [n for at_s, n in waiting if at_s <= self.now_s]
        waiting[:] = [one for one in waiting if one[0] > self.now_s]
        return due

    def _complete(self, step_s: float) -> None:
        self._area += len(self._work) * step_s
        self.seconds[-1].work = max(self.seconds[-1].work, len(self._work))
        self._credit = min(self.capacity * STEP_S, self._credit) + self.capacity * step_s
        while self._work and self._credit >= 1:
            since_s, n = self._work.popleft()
            self._credit -= 1
            self._done += 1
            self.seconds[-1].done += 1
            self.waits_s.append(self.now_s - since_s)
            self._paid.append((self.now_s + self.provider_s, n))

    async def tell(self) -> None:
        loop = self.queue.state.control_loop
        self._frames.append((self._area, self._done, self._untold_s))
        area, done_n, passed_s = map(sum, zip(*self._frames, strict=True))
        work, done = area / max(passed_s, STEP_S), done_n / max(passed_s, STEP_S)
        orders = load_frame(
            "orders", "o-1", work=self._area / max(self._untold_s, STEP_S), average_work=work, done_per_s=done
        )
        for frame in (load_frame(), orders):
            loop.ceilings.load_cache.on_frame(frame.model_dump_json().encode())
        self._area, self._done, self._untold_s = 0.0, 0, 0.0
        await loop.run_once()
