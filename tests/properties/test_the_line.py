"""Whatever fans, operators and engines do, in any order: the line keeps what it promises (invariants 3, 4 and 5)."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import create_async_engine

from services.queue import by_hand
from services.queue.app import build
from services.queue.rooms import Action
from services.queue.settings import QueueSettings
from shared.clock import now_ms
from tests.queue.conftest import EVENT, Inventory, Queue

MAX_ACTIVE, BURST, WINDOW_S, CLAIM_S = 9, 3, 30, 20
SLACK = 1.0  # tokens: the test reads the clock a little before or after the engine does
SURELY_HEARD_S = 2 * WINDOW_S - 1
TABLES = "room, lane, place, admission, room_change, outbox, log_offset"
FAN = st.integers(1, 24).map("fan-{}".format)
SOON_S = st.sampled_from([0.1, 1.0, 3.0])
LATER_S = st.sampled_from([0.3, 2.0, CLAIM_S + 1, 3 * WINDOW_S + 1])


@dataclass
class Model:
    """What a person with a notebook would know."""

    places: dict[str, int] = field(default_factory=dict)  # live places, by holder
    heard_ms: dict[int, int] = field(default_factory=dict)
    called: set[int] = field(default_factory=set)
    rate_per_s: float = 0.0
    is_open: bool = True
    tokens: float = BURST
    calls: int = 0
    at_ms: int = 0
    head: int = 0


class TheLine(RuleBasedStateMachine):
    """One queue on real engines, turned by hand."""

    redis_url: str
    postgres_url: str

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.Runner()
        self.model = Model()
        self.run(self._open())

    def run(self, work: Any) -> Any:
        return self.loop.run(work)

    async def _open(self) -> None:
        self.redis = Redis.from_url(self.redis_url)
        self.engine = create_async_engine(self.postgres_url, pool_size=4)
        await self.redis.flushall()
        running = build(QueueSettings(ramp_after_loss=False), self.engine, self.redis, Inventory().client())
        self.queue = Queue(running, self.engine, self.redis, Inventory())
        tables = ", ".join(f"queue.{table}" for table in TABLES.split(", "))
        await self.queue.sql(f"TRUNCATE {tables}")
        await self.queue.open(rate_per_s=2, burst=BURST, max_active=MAX_ACTIVE, claim_window_s=CLAIM_S,
                              liveness_window_s=WINDOW_S, max_misses=2)  # fmt: skip
        self.model.rate_per_s, self.model.at_ms = 2, self.now_ms()
        await self.queue.join(*(f"fan-{n}" for n in range(1, 21)))
        await self.look()
        self.model.heard_ms = dict.fromkeys(self.model.places.values(), self.now_ms())

    def now_ms(self) -> int:
        return now_ms() + self.queue.running.line.clock_offset_ms

    def passes(self, seconds: float = 0) -> None:
        """Time goes on, at the present rate; what the test itself takes counts too."""
        if seconds:
            self.queue.later(seconds)
        at_ms, model = self.now_ms(), self.model
        if model.is_open:
            earned = model.rate_per_s * max(0, at_ms - model.at_ms) / 1000
            model.tokens = min(BURST, model.tokens + earned)
        model.at_ms = max(at_ms, model.at_ms)

    async def look(self) -> None:
        """Takes down what the ledger says was called and has ended."""
        rows = await self.queue.sql("SELECT join_seq, holder, ended_at IS NULL AS live FROM queue.place")
        self.model.places = {row.holder: row.join_seq for row in rows if row.live}
        called = await self.queue.sql("SELECT join_seq FROM queue.admission")
        self.model.called = {row.join_seq for row in called}
        self.model.tokens -= len(called) - self.model.calls
        self.model.calls = len(called)

    @rule(fans=st.lists(FAN, min_size=1, max_size=6), known=st.booleans(), then_s=SOON_S)
    def join(self, fans: list[str], known: bool, then_s: float) -> None:
        answers = self.run(self.queue.join(*fans, may_be_known=known))
        for fan, answer in zip(fans, answers, strict=True):
            assert answer.word in ("joined", "known")
            assert self.model.places.get(fan, answer.join_seq) == answer.join_seq, "one live place"
            self.model.heard_ms[answer.join_seq] = self.now_ms()
        self.passes()
        self.run(self.look())
        self.tick(then_s)

    @rule(fans=st.sets(FAN, max_size=8))
    def sign_of_life(self, fans: set[str]) -> None:
        heard = [self.model.places[fan] for fan in sorted(fans) if fan in self.model.places]
        if heard:
            self.run(self.queue.heard(*heard))
            self.model.heard_ms |= dict.fromkeys(heard, self.now_ms())

    @rule(seconds=LATER_S)
    def tick(self, seconds: float) -> None:
        """A turn later; a long silence, a missed claim and an unhurried gatekeeper are only longer times."""
        self.passes(seconds)
        before = self.model.places
        self.run(self.queue.running.gatekeeper.turn(EVENT))
        self.run(self.queue.sessions_ended())
        self.passes()
        self.run(self.look())
        head = int(self.run(self.queue.room_hash())["head_seq:0"])
        since_ms = self.now_ms() - SURELY_HEARD_S * 1000
        for seq in set(before.values()) & set(self.model.places.values()):
            if self.model.head < seq <= head and self.model.heard_ms.get(seq, 0) > since_ms:
                assert seq in self.model.called, f"{seq} lives and was passed over"
        self.model.head = max(head, self.model.head)

    @rule(fans=st.sets(FAN, max_size=8), then_s=SOON_S)
    def claim(self, fans: set[str], then_s: float) -> None:
        self._of_some(fans, self.queue.claim)
        self.tick(then_s)

    @rule(fans=st.sets(FAN, max_size=3), then_s=SOON_S)
    def leave(self, fans: set[str], then_s: float) -> None:
        self._of_some(fans, self.queue.leave)
        self.tick(then_s)

    def _of_some(self, fans: set[str], act: Any) -> None:
        refs = [(self.model.places[fan], fan) for fan in sorted(fans) if fan in self.model.places]
        if refs:
            self.run(act(*refs))
            self.run(self.look())

    @rule(rate_per_s=st.sampled_from([0.0, 0.5, 2.0, 5.0]))
    def change_the_rate(self, rate_per_s: float) -> None:
        self.passes()
        self.run(self.queue.configure(rate_per_s=rate_per_s))
        self.model.rate_per_s = max(rate_per_s, self.model.rate_per_s)
        self.passes()
        self.model.rate_per_s = rate_per_s
        self.run(self.look())

    @rule(count=st.integers(1, 6))
    def admit_by_hand(self, count: int) -> None:
        self.passes()
        running = self.queue.running
        room = self.run(running.rooms.get(EVENT))
        self.model.tokens += self.run(by_hand.admit(running.line, running.gatekeeper, room, count))
        self.run(self.look())

    @rule(mishap=st.sampled_from(["pause", "loss"]), then_s=LATER_S)
    def mishap(self, mishap: str, then_s: float) -> None:
        if mishap == "pause":
            self._move("pause")
            self.model.is_open = False
            self.tick(then_s)
            self.model.is_open = True
            self._move("resume")
        else:
            self.run(self.redis.flushall())
            self.run(self.queue.running.recovery.rebuild(EVENT))
            self.tick(then_s)

    def _move(self, action: Action) -> None:
        self.passes()
        room = self.run(self.queue.running.rooms.move(EVENT, action, actor="test", reason=None))
        self.run(self.queue.running.gatekeeper.obey(room))
        self.passes()
        self.run(self.look())

    @invariant()
    def a_holder_has_one_live_place(self) -> None:
        rows = self.run(
            self.queue.sql("SELECT 1 FROM queue.place WHERE ended_at IS NULL GROUP BY holder HAVING count(*) > 1")
        )
        assert not rows

    @invariant()
    def calls_keep_to_the_rate(self) -> None:
        assert self.model.tokens >= -SLACK, "more were called than the bucket held"

    @invariant()
    def not_more_inside_than_may_be(self) -> None:
        keys = f"queue:{{{EVENT}}}:1:called", f"queue:{{{EVENT}}}:1:active"
        assert sum(self.run(self.redis.zcard(key)) for key in keys) <= MAX_ACTIVE

    def teardown(self) -> None:
        self.run(self.redis.aclose())
        self.run(self.engine.dispose())
        self.loop.close()


def test_the_line_keeps_what_it_promises(redis_url: str, postgres_url: str) -> None:
    machine = type("TheLineHere", (TheLine,), {"redis_url": redis_url, "postgres_url": postgres_url})
    bounded = settings(
        max_examples=8,
        stateful_step_count=25,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=bounded)
