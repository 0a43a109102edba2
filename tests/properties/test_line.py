"""Model test of the line: invariants 3, 4, 5 and 10 hold after any order of requests, crashes and lost Redis data."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import create_async_engine

from services.queue.admission import gatekeeper
from services.queue.admission.gatekeeper import run_tick
from services.queue.app import build
from services.queue.line.invariants import check_invariants
from services.queue.line.redis_line import LineNotReady
from services.queue.places.join import LaneJoinBatch, insert_places, join_seqs
from services.queue.rooms.store import Action
from services.queue.settings import Settings
from services.queue.tuning import Tuning
from shared.contracts.queue import JoinRequest
from shared.errors.problems import StaleEpoch
from shared.runtime.clock import now_ms
from tests.properties.examples import bounded, run_machine
from tests.queue.conftest import EVENT, TEST, Inventory, Queue

MAX_ACTIVE, BURST, WINDOW_S, CLAIM_S = 9, 3, 30, 20
SLACK = 1.0  # tokens: the test reads the clock a little before or after Redis does
SURELY_ALIVE_S = 2 * WINDOW_S - 1
TABLES = "room, lane, place, admission, audit_log, outbox_batch, log_offset"
FAN = st.integers(1, 24).map("fan-{}".format)
SOON_S = st.sampled_from([0.1, 1.0, 3.0])
LATER_S = st.sampled_from([0.3, 2.0, CLAIM_S + 1, 3 * WINDOW_S + 1])


@dataclass
class Model:
    """The expected state, kept by simple rules."""

    places: dict[str, int] = field(default_factory=dict)  # live places, by holder
    heartbeat_ms: dict[int, int] = field(default_factory=dict)
    called: set[int] = field(default_factory=set)
    rate_per_s: float = 0.0
    is_open: bool = True
    tokens: float = BURST
    calls: int = 0
    at_ms: int = 0
    head: int = 0
    highest: int = 0  # number allocated so far


class LineMachine(RuleBasedStateMachine):
    """One queue on real PostgreSQL and Redis; the gatekeeper ticks only as a rule."""

    redis_url: str
    postgres_url: str

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.Runner()
        self.model, self.last_change = Model(), 0
        self.run(self._open())

    def run(self, work: Any) -> Any:
        return self.loop.run(work)

    async def _open(self) -> None:
        self.redis = Redis.from_url(self.redis_url)
        self.db = create_async_engine(self.postgres_url, pool_size=4)
        await self.redis.flushall()
        state = build(Settings(), self.db, self.redis, Inventory().client(), Tuning(ramp_after_loss=False))
        self.queue = Queue(state, self.db, self.redis, Inventory())
        tables = ", ".join(f"queue.{table}" for table in TABLES.split(", "))
        await self.queue.sql(f"TRUNCATE {tables}")
        await self.queue.open(rate_per_s=2, burst=BURST, max_active=MAX_ACTIVE, claim_window_s=CLAIM_S,
                              liveness_window_s=WINDOW_S, max_misses=2)  # fmt: skip
        self.model.rate_per_s, self.model.at_ms = 2, self.now_ms()
        await self.queue.join(*(f"fan-{n}" for n in range(1, 21)))
        await self.read_database()
        self.model.heartbeat_ms = dict.fromkeys(self.model.places.values(), self.now_ms())

    def now_ms(self) -> int:
        return now_ms() + self.queue.state.line.clock_offset_ms

    def advance(self, seconds: float = 0) -> None:
        """Adds the tokens of the time that has passed, including the time that the test itself takes."""
        if seconds:
            self.queue.advance_clock(seconds)
        at_ms, model = self.now_ms(), self.model
        if model.is_open:
            earned = model.rate_per_s * max(0, at_ms - model.at_ms) / 1000
            model.tokens = min(BURST, model.tokens + earned)
        model.at_ms = max(at_ms, model.at_ms)

    async def read_database(self) -> None:
        """Reads places and calls from the database, and moves new audit log entries to the simulated time."""
        moved = "UPDATE queue.audit_log SET at = at + make_interval(secs => :s) WHERE id > :last RETURNING id"
        offset_s = self.queue.state.line.clock_offset_ms / 1000
        rows = await self.queue.sql(moved, s=offset_s, last=self.last_change)
        self.last_change = max([self.last_change, *(row.id for row in rows)])
        places = "SELECT join_seq, holder, ended_at IS NULL AS live FROM queue.place WHERE epoch = :epoch"
        rows = await self.queue.sql(places, epoch=self.queue.epoch)
        self.model.places = {row.holder: row.join_seq for row in rows if row.live}
        self.model.highest = max([self.model.highest, *(row.join_seq for row in rows)])
        called = await self.queue.sql(
            "SELECT join_seq FROM queue.admission WHERE epoch = :epoch", epoch=self.queue.epoch
        )
        self.model.called = {row.join_seq for row in called}
        new = max(0, len(called) - self.model.calls)  # a dead gatekeeper's calls are counted before they are saved
        self.model.tokens -= new
        self.model.calls += new

    @rule(fans=st.lists(FAN, min_size=1, max_size=6), known=st.booleans(), then_s=SOON_S)
    def join(self, fans: list[str], known: bool, then_s: float) -> None:
        answers = self.run(self.queue.join(*fans, may_be_known=known))
        for fan, answer in zip(fans, answers, strict=True):
            assert answer.word in ("joined", "known")
            assert self.model.places.get(fan, answer.join_seq) == answer.join_seq, "one live place"
            assert fan in self.model.places or answer.join_seq > self.model.highest, "no number is allocated twice"
            self.model.heartbeat_ms[answer.join_seq] = self.now_ms()
        self.advance()
        self.run(self.read_database())
        self.tick(then_s)

    @rule(fans=st.sets(FAN, max_size=8))
    def heartbeat(self, fans: set[str]) -> None:
        alive = [self.model.places[fan] for fan in sorted(fans) if fan in self.model.places]
        if alive:
            self.run(self.queue.heartbeat(*alive))
            self.model.heartbeat_ms |= dict.fromkeys(alive, self.now_ms())

    @rule(seconds=LATER_S)
    def tick(self, seconds: float) -> None:
        """A later tick; silent fans, missed claims and late ticks are only longer times."""
        self.advance(seconds)
        before = self.model.places
        self.run(self.queue.state.gatekeeper.tick(EVENT))
        self.run(self.queue.drain_sessions())
        self.advance()
        self.run(self.read_database())
        head = self._head()
        since_ms = self.now_ms() - SURELY_ALIVE_S * 1000
        for seq in set(before.values()) & set(self.model.places.values()):
            if self.model.head < seq <= head and self.model.heartbeat_ms.get(seq, 0) > since_ms:
                assert seq in self.model.called, f"{seq} is live and was skipped"
        self.model.head = max(head, self.model.head)

    def _head(self) -> int:
        return int(self.run(self.queue.room_hash())["head_seq:0"])

    @rule(fans=st.sets(FAN, max_size=8), then_s=SOON_S)
    def claim(self, fans: set[str], then_s: float) -> None:
        self._with_places(fans, self.queue.claim)
        self.tick(then_s)

    @rule(fans=st.sets(FAN, max_size=3), then_s=SOON_S)
    def leave(self, fans: set[str], then_s: float) -> None:
        self._with_places(fans, self.queue.leave)
        self.tick(then_s)

    def _with_places(self, fans: set[str], act: Any) -> None:
        refs = [(self.model.places[fan], fan) for fan in sorted(fans) if fan in self.model.places]
        if refs:
            self.run(act(*refs))
            self.run(self.read_database())

    @rule(rate_per_s=st.sampled_from([0.0, 0.5, 2.0, 5.0]))
    def change_the_rate(self, rate_per_s: float) -> None:
        self.advance()
        self.run(self.queue.configure(rate_per_s=rate_per_s))
        self.model.rate_per_s = max(rate_per_s, self.model.rate_per_s)
        self.advance()
        self.model.rate_per_s = rate_per_s
        self.run(self.read_database())

    @rule(count=st.integers(1, 6))
    def admit_now(self, count: int) -> None:
        self.advance()
        state = self.queue.state
        recorded = state.rooms.record_action(EVENT, "admit", TEST, admit=count)
        room = self.run(recorded)
        self.model.tokens += self.run(gatekeeper.admit_now(state.line, state.gatekeeper, room, count))
        self.model.head = max(self._head(), self.model.head)  # silent places are skipped by manual admissions, too
        self.run(self.read_database())

    @rule(failure=st.sampled_from(["pause", "loss"]), then_s=LATER_S)
    def pause_or_lose_redis(self, failure: str, then_s: float) -> None:
        if failure == "pause":
            self._transition("pause")
            self.model.is_open = False
            self.tick(then_s)
            self.model.is_open = True
            self._transition("resume")
        else:
            self.run(self.redis.flushall())
            self.run(self.queue.state.recovery.rebuild(EVENT))
            self.model.highest = 0  # numbers that were not committed may be given again
            self.run(self.read_database())
            self.tick(then_s)

    @rule(count=st.integers(1, 4), committed=st.booleans(), then_s=LATER_S)
    def a_batch_commits_late(self, count: int, committed: bool, then_s: float) -> None:
        """A process allocates numbers and then pauses or dies: later numbers wait for it only for a limited time."""
        at_ms, room = self.now_ms(), self.run(self.queue.state.rooms.get(EVENT))
        numbers = self.run(self.queue.state.line.allocate(room, 0, f"late-{at_ms}", count=count))
        if numbers.outcome != "ok":
            return
        self.model.highest = max(self.model.highest, numbers.first + numbers.granted - 1)
        self.tick(then_s)
        if committed:
            joins = [JoinRequest(holder=f"late-{n}-{at_ms}") for n in range(numbers.granted)]
            batch = LaneJoinBatch(room, 0, f"late-{at_ms}", {join.holder: join for join in joins})
            placed = self.run(insert_places(self.db, batch, numbers))
            self.run(self.queue.state.line.commit_join(room, 0, numbers.member, join_seqs(placed)))
            self.run(self.read_database())

    @rule()
    def a_gatekeeper_dies(self) -> None:
        """It has called fans in Redis and not saved the calls: the next tick saves them, also after a loss of data."""
        self.advance(0.5)
        room = self.run(self.queue.state.rooms.get(EVENT))
        stock = self.run(self.queue.state.gatekeeper.stock_cache.get(EVENT))
        with contextlib.suppress(LineNotReady):
            before = self._calls()
            self.run(run_tick(self.queue.state.line, room, heartbeat_gap=False, stock=stock))
            unwritten = self._calls() - before
            self.model.tokens, self.model.calls = self.model.tokens - unwritten, self.model.calls + unwritten

    def _calls(self) -> int:
        return int(self.run(self.queue.room_hash()).get("calls", 0))

    @rule(then_s=SOON_S)
    def reset(self, then_s: float) -> None:
        """A new line starts; tokens of the old one are refused."""
        old = self.queue.places((1, "fan-1"))
        room = self.run(self.queue.state.rooms.reset(EVENT, TEST))
        self.run(self.queue.state.gatekeeper.apply_config(room))
        self.advance()
        self.queue.epoch = room.epoch
        self.model.heartbeat_ms, self.model.called, self.model.calls = {}, set(), 0
        self.model.head = self.model.highest = 0
        self.run(self.read_database())
        assert self.model.places == {}
        with pytest.raises(StaleEpoch):
            self.run(self.queue.state.claims.claim(old))
        self.tick(then_s)

    def _transition(self, action: Action) -> None:
        self.advance()
        room = self.run(self.queue.state.rooms.transition(EVENT, action, TEST))
        self.run(self.queue.state.gatekeeper.apply_config(room))
        self.advance()
        self.run(self.read_database())

    @invariant()
    def a_holder_has_one_live_place(self) -> None:
        rows = self.run(
            self.queue.sql(
                "SELECT 1 FROM queue.place WHERE ended_at IS NULL GROUP BY epoch, holder HAVING count(*) > 1"
            )
        )
        assert not rows

    @invariant()
    def calls_keep_to_the_rate(self) -> None:
        assert self.model.tokens >= -SLACK, "more fans were called than the token bucket held"

    @invariant()
    def sessions_and_calls_keep_to_max_active(self) -> None:
        assert sum(len(self.run(self.queue.sorted_set(name))) for name in ("called", "active")) <= MAX_ACTIVE

    @invariant()
    def redis_and_database_agree(self) -> None:
        """The invariants hold at any time, also right after a loss."""
        room = self.run(self.queue.state.rooms.get(EVENT))
        offset_ms = self.queue.state.line.clock_offset_ms
        lines = self.run(check_invariants(self.db, self.redis, room, None, clock_offset_ms=offset_ms))
        assert [line for line in lines if not line.holds] == []

    def teardown(self) -> None:
        self.run(self.redis.aclose())
        self.run(self.db.dispose())
        self.loop.close()


def test_the_invariants_of_the_line_hold_in_random_histories(redis_url: str, postgres_url: str) -> None:
    run_machine(LineMachine, redis_url, postgres_url, settings=bounded(examples=4, steps=25))
