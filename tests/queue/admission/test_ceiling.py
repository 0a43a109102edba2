"""The ceiling on purchases in progress lets no more fans in than checkout completes, and never stops the line.

A checkout that completes so many purchases a second, and fans who come to it as the line calls them, on the clock of
a queue: what the ceiling on purchases in progress does in a minute is seen in a second.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from services.queue.admission.ceiling import SILENT_WORK, LoadCache
from services.queue.admission.gatekeeper import admit_now
from shared.contracts.event_file import RoomPart
from shared.contracts.frames import FRAME_STALE_S, LineFrame, LoadFrame, Throttled, load_channel
from shared.contracts.room_options import PaceRules
from shared.process.load import AVERAGED, LEAST_MAX
from tests.queue.conftest import EVENT, Queue, line_frame, load_frame
from tests.support.wait import wait_until

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


FLOOR_PER_S = 20  # a tenth of the rate of `sale`

SLOW: dict[str, Any] = {"work": 150.0, "average_work": 150.0, "done_per_s": 50.0}


def at_checkout(*frames: LoadFrame, slow_ms: int = 1000) -> Any:
    cache = LoadCache(cast(Any, None))
    for frame in frames:
        cache.on_frame(frame.model_dump_json().encode())
    return cache.checkout(slow_ms=slow_ms)


@pytest.mark.parametrize(
    ("facts", "work", "slowness", "overload"),
    [
        ([{}], 2, 0, None),
        ([SLOW], 150, 3, "inventory-slow"),
        ([SLOW, {"done_per_s": 110.0}], 152, 1, None),
        ([{**SLOW, "average_work": 25.0}], 150, 0.5, None),
        ([{"work": 9.0, "average_work": 9.0, "done_per_s": 0.0}], 9, 0, None),
        ([{"work": 12.0, "average_work": 12.0, "done_per_s": 0.0}], 12, 1e6, "inventory-slow"),
    ],
)
def test_checkout_is_slow_that_has_more_in_work_than_it_completes_in_a_time(
    facts: list[dict[str, Any]], work: float, slowness: float, overload: str | None
) -> None:
    found = at_checkout(*(load_frame(process=f"i-{n}", **one) for n, one in enumerate(facts)))
    assert (found.work, found.overload) == (work, overload)
    assert found.slowness == pytest.approx(min(1e6, slowness), rel=0.1)


def test_the_slower_service_counts_and_what_both_have_in_work() -> None:
    found = at_checkout(load_frame(**SLOW), load_frame("orders", "o-1", **{**SLOW, "done_per_s": 20.0}))
    assert (found.work, found.done_per_s, found.overload) == (300, 20, "orders-slow")
    assert at_checkout(load_frame(**SLOW), slow_ms=5000).overload is None, "each room has a limit of its own for slow"


@pytest.fixture
def control_and_tick(queue: Queue) -> Callable[..., Any]:
    """Runs the control loop, after a load frame if one is given, and then a tick."""

    async def run(after_s: float = 1.0, *, load: LoadFrame | None = None) -> LineFrame:
        if load is not None:
            receive(queue, load)
        queue.advance_clock(after_s)
        await queue.state.control_loop.run_once()
        return await queue.state.gatekeeper.tick(EVENT)

    return run


def receive(queue: Queue, load: LoadFrame) -> None:
    queue.state.control_loop.ceilings.load_cache.on_frame(load.model_dump_json().encode())


async def ceiling(queue: Queue) -> float:
    return float((await queue.room_hash())["ceiling"])


async def test_the_ceiling_falls_while_checkout_is_slow_and_rises_while_it_holds_fans_back(
    queue: Queue, control_and_tick
) -> None:
    await queue.open(fans=900, rate_per_s=400, burst=400, max_active=100_000)
    await control_and_tick(load=load_frame())
    assert await ceiling(queue) == 128, "few at first"
    fallen = []
    for _ in range(4):
        await control_and_tick(load=load_frame(**SLOW))
        fallen.append(await ceiling(queue))
    assert fallen == pytest.approx([64, 50, 50, 50], rel=0.05), "not below what is done in a second"
    risen = []
    for _ in range(8):
        await control_and_tick(load=load_frame())
        risen.append(await ceiling(queue))
    assert risen[:2] == pytest.approx([64, 64 * 1.1], rel=0.05), "half of what it was is back in seconds"
    assert risen[3] == pytest.approx(64 * 1.1**3, rel=0.1)
    assert risen[-1] / risen[-2] == pytest.approx(1.1, rel=0.05), "the rest slowly"


async def test_a_burst_after_a_quiet_time_does_not_raise_the_ceiling_for_that_time(
    queue: Queue, control_and_tick
) -> None:
    await queue.open(rate_per_s=400, burst=400, max_active=100_000)
    await control_and_tick(load=load_frame())
    await queue.join_fans(900)
    await queue.tick(4.5)
    await control_and_tick(0.1, load=load_frame())
    assert await ceiling(queue) == pytest.approx(128 * 1.6, rel=0.05), (
        "a second's rise, although it is five since the last"
    )


async def test_fans_who_were_just_called_and_work_at_checkout_are_in_progress_and_no_more_are_called(
    queue: Queue, control_and_tick
) -> None:
    pace = {"guard_floor": 0.01}
    await queue.open(rate_per_s=1000, burst=1000, max_active=100_000, pace=pace)
    await control_and_tick(load=load_frame(work=28.0))
    await queue.join_fans(900)
    await queue.tick()
    assert len(await queue.called()) in range(100, 106), "128 less the work"
    await queue.tick(0.1)
    assert len(await queue.called()) in range(100, 112), "no more, but the floor"
    await queue.claim(*((n, f"fan-{n}") for n in await queue.called()))
    called = len(await queue.sorted_set("active"))
    await queue.tick(0.1)
    assert len(await queue.called()) <= 12, "who was let in just now is in progress"
    await queue.tick(2.5)
    assert len(await queue.called()) > called // 2, "who takes time to choose is not"


async def test_fans_are_called_at_the_floor_whatever_checkout_says(queue: Queue, control_and_tick) -> None:
    await queue.open(fans=900, rate_per_s=100, burst=1, max_active=100_000)
    frames = [await control_and_tick(load=load_frame(work=1e6, average_work=1e6, done_per_s=0.0)) for _ in range(3)]
    frame = frames[-1]
    assert frame.throttled == Throttled(factor=0.1, reason="inventory-slow")
    assert (frame.rate_per_s, frame.effective_rate_per_s) == (100, 10)
    before = len(await queue.called())
    for _ in range(50):
        await queue.tick(0.2)
    assert len(await queue.called()) - before in range(95, 130), "10 s at a tenth of 100, and the test's own time"


async def test_several_control_loops_move_the_ceiling_as_one(queue: Queue, new_queue) -> None:
    await queue.open(rate_per_s=100)
    other = new_queue()
    await other.state.rooms.refresh()
    for _ in range(2):
        queue.advance_clock(1.0)
        other.state.line.clock_offset_ms = queue.state.line.clock_offset_ms
        for one in (queue, other, queue, other):
            receive(one, load_frame(work=900.0, average_work=900.0, done_per_s=1.0))
            await one.state.control_loop.run_once()
    assert await ceiling(queue) == pytest.approx(64, rel=0.05)


async def test_rooms_share_the_ceiling_by_their_rates(queue: Queue, control_and_tick) -> None:
    await queue.open(fans=10, rate_per_s=0.001)
    await control_and_tick(load=load_frame(work=30.0))
    assert (await queue.room_hash())["at_checkout"] == "30.0"
    loop, room = queue.state.control_loop, await queue.state.rooms.get(EVENT)
    loop.gatekeeper.frames.last["other"] = line_frame()
    loop.rooms.known["other"] = replace(room, event_id="other", rate_per_s=0.002)
    assert loop._share(room) == pytest.approx(1 / 3)


async def test_a_service_that_has_gone_silent_leaves_the_floor_and_one_never_heard_of_everything(
    queue: Queue, control_and_tick
) -> None:
    now_s = 0.0
    queue.state.control_loop.ceilings.load_cache = LoadCache(queue.redis, clock=lambda: now_s)
    pace = {"guard_floor": 0.02}
    await queue.open(fans=900, rate_per_s=500, burst=500, max_active=100_000, pace=pace)
    assert (await control_and_tick()).throttled is None
    assert len(await queue.called()) > 300
    await control_and_tick(load=load_frame())
    assert len(await queue.called()) < 800
    now_s = FRAME_STALE_S + 1
    frame = await control_and_tick()
    assert frame.throttled == Throttled(factor=0.02, reason="inventory-silent")
    assert float((await queue.room_hash())["at_checkout"]) == SILENT_WORK
    receive(queue, load_frame())
    assert queue.state.control_loop.ceilings.load_cache.checkout(slow_ms=1000).overload is None


@pytest.mark.parametrize("mode", ["observe", "off"])
async def test_a_guard_that_observes_holds_nobody_back(queue: Queue, control_and_tick, mode: str) -> None:
    await queue.open(fans=900, rate_per_s=1000, burst=1000, pace={"guard": mode})
    frame = [await control_and_tick(load=load_frame(**SLOW)) for _ in range(5)][-1]
    assert (len(await queue.called()), frame.throttled) == (900, None)
    observed = queue.state.control_loop.ceilings.observed.get(EVENT)
    assert (observed.factor if observed else None) == (0.1 if mode == "observe" else None)


async def test_switching_the_guard_off_calls_at_the_rate_at_once(queue: Queue, control_and_tick) -> None:
    await queue.open(fans=900, rate_per_s=1000, burst=1000)
    assert (await control_and_tick(load=load_frame(**SLOW))).throttled is not None
    await queue.configure(pace=PaceRules(guard="off"))
    assert (await control_and_tick(0.5, load=load_frame(**SLOW))).throttled is None
    assert len(await queue.called()) > 500


async def test_an_operator_calls_beyond_the_ceiling(queue: Queue, control_and_tick) -> None:
    await queue.open(fans=100, rate_per_s=1, burst=1)
    await control_and_tick(load=load_frame(work=1e6, average_work=1e6, done_per_s=0.0))
    room = await queue.state.rooms.get(EVENT)
    assert await admit_now(queue.state.line, queue.state.gatekeeper, room, 30) == 30


async def test_load_frames_are_received_over_pub_sub_and_invalid_ones_are_ignored(queue: Queue) -> None:
    load_cache = queue.state.control_loop.ceilings.load_cache
    listening = asyncio.create_task(load_cache.listen())
    try:

        async def received() -> bool:
            await queue.redis.publish(load_channel("inventory"), b"{}")
            await queue.redis.publish(load_channel("inventory"), load_frame(**SLOW).model_dump_json())
            return load_cache.checkout(slow_ms=1000).overload == "inventory-slow"

        await wait_until(received)
    finally:
        listening.cancel()


# -- sales, on a clock of their own ------------------------------------------------------------------------------------


@pytest.fixture
def sale(queue: Queue) -> Callable[..., Any]:
    """A line of 1,500 fans, of whom 200 are called a second if checkout allows it, which completes `capacity`."""

    async def make(capacity: float, *, rate_per_s: float = 200, fans: int = 1500, **options: Any) -> Sale:
        await queue.open(rate_per_s=rate_per_s, burst=round(rate_per_s), max_active=4000)
        for first in range(1, fans + 1, 500):
            await queue.join(*(f"fan-{n}" for n in range(first, first + 500)))
        made = Sale(queue, capacity, **options)
        await made.tell()
        return made

    return make


def last(seconds: list[Any], count: int, of: str) -> float:
    """The mean of the last so many seconds."""
    return sum(getattr(second, of) for second in seconds[-count:]) / count


@pytest.mark.parametrize("capacity", [50, 120])
async def test_a_crowd_is_called_as_fast_as_checkout_completes(sale, capacity: float) -> None:
    crowd = await sale(capacity)
    seconds = await crowd.run(10)
    assert max(second.work for second in seconds) < LEAST_MAX, "a process with less to do refuses nobody"
    assert last(seconds, 5, "done") > 0.8 * capacity
    assert sorted(crowd.waits_s)[int(0.95 * len(crowd.waits_s))] < 2.0


async def test_a_provider_that_takes_seconds_slows_nobody(sale) -> None:
    crowd = await sale(80, provider_s=2.5)
    seconds = await crowd.run(14)
    assert max(second.work for second in seconds) < LEAST_MAX
    assert last(seconds, 6, "done") > 0.75 * 80


async def test_half_of_those_who_are_called_stay_away_and_others_are_called_instead(sale) -> None:
    crowd = await sale(50, stay_away=0.5)
    seconds = await crowd.run(14)
    assert max(second.work for second in seconds) < LEAST_MAX
    assert last(seconds, 10, "done") > 0.7 * 50
    assert last(seconds, 10, "called") > 65, "more than are completed"
    assert min(second.called for second in seconds[1:]) >= 0.9 * FLOOR_PER_S


async def test_after_everybody_paid_at_once_the_line_goes_on_within_seconds(sale) -> None:
    choosing = await sale(100, rate_per_s=120, thinks_s=1000)
    before = await choosing.run(5)
    assert last(before, 2, "called") > 100, "who chooses is no load"
    paying = choosing.pay_at_once()
    assert paying > 300
    seconds = await choosing.run(paying / 100 + 6)
    assert choosing.finished == paying
    assert min(second.called for second in seconds) >= 10, "the floor, while it is being done"
    assert seconds[-2].called > 50, "in the last whole second"
    assert max(second.called for second in seconds[1:]) <= 250, "what was saved up, and no more than the rate"


async def test_after_a_loss_of_redis_the_rate_ramps_up_from_a_fifth(new_queue) -> None:
    queue = new_queue(ramp_after_loss=True)
    await queue.open(fans=50, rate_per_s=100, burst=1, max_active=100_000)
    await queue.redis.flushall()
    await queue.state.recovery.rebuild(EVENT)
    queue.time_ms = int((await queue.room_hash())["ramp_ms"])  # the test's own time does not count
    frames = [await queue.tick(s) for s in (0.2, 14.8, 0.2, 16.0, 0.2)][::2]  # a tick uses the rate it began with
    factors = [frame.throttled.factor if frame.throttled else 1.0 for frame in frames]
    assert factors == [pytest.approx(0.2, abs=0.02), pytest.approx(0.6, abs=0.02), 1.0]
    assert frames[0].throttled
    assert frames[0].throttled.reason == "recovering"


def test_switches_may_be_booleans_and_wrong_pace_rules_are_refused() -> None:
    assert RoomPart.model_validate({"pace": {"guard": False}}).pace.guard == "off"
    for wrong in ({"guard": "maybe"}, {"guard_floor": 0}):
        with pytest.raises(ValueError, match="Input should"):
            PaceRules.model_validate(wrong)
