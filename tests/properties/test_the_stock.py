"""Whatever fans, orders, dying processes and engines do, in any order: nothing is sold twice, nothing is lost, and with
nobody about nothing stays held (invariants 1, 2 and 9).
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from redis.exceptions import ConnectionError as EngineAway
from sqlalchemy import text

from services.inventory import app as app_room
from services.inventory.api.reservations import build_request
from services.inventory.api.schemas import ReserveBody
from services.inventory.reconcile.redis_diff import differences, read_redis_stock
from services.inventory.reservations.partial_release import keep_only
from services.inventory.reservations.repository import ReservationRow
from services.inventory.reservations.reserve import Reserved
from services.inventory.stock.snapshot import read_stock
from services.inventory.tables import metadata
from shared.contracts.admin.inventory import ReconcilePass
from shared.contracts.inventory import PaymentStep
from shared.runtime.clock import now_ms
from shared.security.tokens import Pass
from shared.web.problems import Problem
from tests.inventory.conftest import EVENT, Inventory, event_file, settings_of, start
from tests.properties.examples import bounded, run_machine
from tests.properties.sleeper import PausedProcess
from tests.properties.stock_model import (
    FLOOR,
    GRACE_S,
    HOLD_TTL_S,
    LIVE_MAX,
    PAY_TTL_S,
    SEATS,
    TICKETS_MAX,
    Entry,
    Notebook,
    Wish,
)

FAN = st.sampled_from(["ann", "ben", "cyd", "dee"])
WISH = st.builds(Wish, st.frozensets(st.sampled_from(SEATS), max_size=2), st.integers(0, 3)).filter(lambda w: w.size)
REFERENCE = st.sampled_from(["order-1", "order-2"])
VERB = st.sampled_from(["begin", "begin", "confirm", "end", "release", "reacquire"])
LATER_S = st.sampled_from([0.0, 4.0, 6.0, PAY_TTL_S + GRACE_S + 1, HOLD_TTL_S + GRACE_S + 1])
HEARD = st.sampled_from([True, True, True, False])
ASLEEP_MAX = 4
ANY = st.integers(0, 999)
FOLLOW_UPS = ("extend", "begin_payment", "confirm", "release", "keep_only", "reacquire", "confirm_written")
EDGE_MS = 2_000  # the test reads the clock a little before or after the engines do
ROWS = text(
    "SELECT reservation_id, status, order_reference, reserved_until_ms, fingerprint = '' AS tombstone "
    "FROM inventory.reservation ORDER BY reservation_id"
)


class TheStock(RuleBasedStateMachine):
    """One inventory on real servers, turned by hand, with other processes of it asleep in the middle of something."""

    redis_url: str
    postgres_url: str

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.Runner()
        self.notes, self.sleepers, self.names = Notebook(), list[PausedProcess](), 0
        self.whole, self.reconcile_s, self.older = False, 0.0, dict[bytes, bytes]()
        self.app = start(settings_of(self.redis_url, self.postgres_url))
        self.loop.run(self._open())

    async def _open(self) -> None:
        self.inventory: Inventory = await anext(self.app)
        self.state, self.redis = self.inventory.state, self.inventory.state.redis_stock.redis
        await self.redis.flushall()
        async with self.state.db.begin() as connection:
            await connection.execute(text(f"TRUNCATE {', '.join(map(str, metadata.sorted_tables))}"))
        venue = event_file(
            hold_ttl_s=HOLD_TTL_S, pay_ttl_s=PAY_TTL_S, grace_s=GRACE_S, tickets_per_customer=TICKETS_MAX,
            active_reservations_per_customer=LIVE_MAX,
        )  # fmt: skip
        seated, _, floor = venue["sections"]
        venue["sections"] = [seated | {"rows": 2, "seats_per_row": 3}, floor | {"capacity": FLOOR}]
        assert (await self.inventory.put(venue)).is_success
        await self.state.redis_monitor.check()
        self.state.reconciler._clock = lambda: self.reconcile_s

    # -- taking --------------------------------------------------------------------------------------------------------

    def _ask(self, holder: str, wish: Wish, key: str) -> Any:
        at = now_ms() // 1000
        admission = Pass(EVENT, holder, f"jti-{holder}", 1, 0, 7, 6, at, at + 900)
        floor = {"ga_section": "GA1", "ga_quantity": wish.floor} if wish.floor else {}
        body = ReserveBody.model_validate({"seats": sorted(wish.seats), **floor})
        return build_request(self.state.catalogue.layout(EVENT), admission, body, key)

    def _key(self) -> str:
        self.names += 1
        return f"key-{self.names}"

    async def _reserve(self, holder: str, wish: Wish, key: str) -> Any:
        try:
            return await self.state.batcher_of(EVENT).reserve(self._ask(holder, wish, key))
        except Problem as problem:
            return problem

    def _note(self, holder: str, wish: Wish, answer: Any) -> str:
        """Takes down what somebody was answered; the word for it."""
        if isinstance(answer, Reserved):
            entry = self.notes.unwritten.pop(answer.reservation_id, None)
            known = entry or Entry(answer.reservation_id, holder, wish, answer.until_ms)
            self.notes.write(known)
            return "held"
        if isinstance(answer, ReservationRow):
            entry = self.notes.unwritten.pop(answer.reservation_id, None)
            if entry:
                self.notes.write(entry)
            mine = self.notes.entries[answer.reservation_id]
            assert (mine.holder, mine.asked) == (holder, wish), "somebody else's reservation"
            return "again"
        assert isinstance(answer, Problem)
        return answer.slug

    @rule(wishes=st.lists(st.tuples(FAN, WISH), min_size=1, max_size=3, unique_by=lambda one: one[0]))
    def hold(self, wishes: list[tuple[str, Wish]]) -> None:
        """Several fans at the same moment; a single one is answered exactly as the notebook says."""
        [(holder, wish), *others] = wishes
        sure = not others and self.notes.is_sure(holder, wish, self.now_ms() + EDGE_MS)
        expected = self.notes.word(holder, wish)

        async def all_at_once() -> list[Any]:
            return await asyncio.gather(*(self._reserve(h, w, self._key()) for h, w in wishes))

        said = [self._note(h, w, answer) for (h, w), answer in zip(wishes, self.run(all_at_once()), strict=True)]
        assert not sure or said == [expected], f"{said}, not {expected}"

    @rule(holder=FAN, wish=WISH, other=WISH)
    def ask_twice(self, holder: str, wish: Wish, other: Wish) -> None:
        """The same key again, with the same body and with another."""
        key = self._key()
        first = self.run(self._reserve(holder, wish, key))
        if self._note(holder, wish, first) != "held":
            return
        entry = self.notes.entries[first.reservation_id]
        again = self.run(self._reserve(holder, wish, key))
        assert isinstance(again, ReservationRow)
        assert again.reservation_id == entry.reservation_id
        if other != wish:
            assert self.run(self._reserve(holder, other, key)).slug == "idempotency-key-reused"

    @rule(holder=FAN, wish=WISH, stop=st.sampled_from(["after Redis", "after the database"]))
    def fall_asleep(self, holder: str, wish: Wish, stop: str) -> None:
        if len(self.sleepers) >= ASLEEP_MAX:
            return

        async def doze() -> PausedProcess:
            sleeper = PausedProcess(self.state.db, self.state.redis_stock, self._ask(holder, wish, self._key()), stop)
            if await sleeper.settles():
                self.sleepers.append(sleeper)
            return sleeper

        sleeper = self.run(doze())
        if sleeper.redis_stock.gated:
            gated = sleeper.redis_stock.gated
            self.notes.unwritten[gated.reservation_id] = Entry(gated.reservation_id, holder, wish, gated.until_ms)
        else:
            self._answered(sleeper)

    def _answered(self, sleeper: PausedProcess) -> str:
        selection = sleeper.ask.selection
        wish = Wish(frozenset(seat[2] for seat in selection.seats), sum(quantity for _, quantity, _ in selection.ga))
        return self._note(sleeper.ask.holder, wish, sleeper.answer.exception() or sleeper.answer.result())

    @rule(which=ANY, dies=st.booleans())
    def wake_or_die(self, which: int, dies: bool) -> None:
        if not self.sleepers:
            return
        sleeper = self.sleepers.pop(which % len(self.sleepers))
        stopped_by_gate = sleeper.redis_stock.gated is not None
        self.run(sleeper.die() if dies else sleeper.wake())
        if not dies and stopped_by_gate:
            word = self._answered(sleeper)
            assert word in ("held", "again", "hold-expired", "unavailable", "seats-taken", "sold-out")
            if word in ("seats-taken", "sold-out"):
                self.notes.unwritten.pop(sleeper.ask.reservation_id, None)

    # -- what becomes of it --------------------------------------------------------------------------------------------

    def _some(self, which: int) -> Entry | None:
        """One of the reservations whose end is not now, to the second: nobody can say what it is at this moment."""
        entries = list(self.notes.entries.values())
        entry = entries[which % len(entries)] if entries else None
        ends_now = entry and entry.is_live and abs(entry.until_ms + 1000 * GRACE_S - self.now_ms()) < EDGE_MS
        return None if ends_now else entry

    @rule(which=ANY, verb=VERB, reference=REFERENCE, hears=HEARD)
    def pay(self, which: int, verb: str, reference: str, hears: bool) -> None:
        entry, at_ms = self._some(which), self.now_ms()
        if entry is None:
            return
        step = PaymentStep(reservation_id=entry.reservation_id, order_reference=reference)
        before = (entry.status, entry.reference)
        with self._redis_away(not hears):
            [done] = self.run(getattr(self.state.payments, verb)([step]))
        assert done.outcome == self.notes.step(verb, entry, reference, at_ms), f"{verb} by {reference} of {entry}"
        assert done.order_reference == entry.reference
        if not hears and before != (entry.status, entry.reference):
            self.notes.astray.add(entry.reservation_id)

    @rule(which=ANY, hears=HEARD)
    def give_back(self, which: int, hears: bool) -> None:
        entry = self._some(which)
        if entry is None:
            return
        asked = self.inventory.mine("DELETE", entry.reservation_id, entry.holder)
        was_pending = entry.status == "pending_payment"
        with self._redis_away(not hears):
            try:
                answer = self.run(asked).status_code
            except EngineAway:
                answer = 204
        if was_pending:
            assert answer in ((204,) if hears else (204, 500, 503))
            entry.status = "cancelled"
            if not hears:
                self.notes.astray.add(entry.reservation_id)
        else:
            assert answer == {"paying": 409, "confirmed": 409, "expired": 410, "cancelled": 204}[entry.status]

    @rule(which=ANY)
    def extend(self, which: int) -> None:
        entry, at_ms = self._some(which), self.now_ms()
        if entry is None:
            return
        possible = entry.status == "pending_payment" and not entry.extended and not entry.overdue(at_ms)
        answer = self.run(self.inventory.mine("POST", entry.reservation_id, entry.holder, more="/extend"))
        assert answer.is_success == possible, answer.text
        if possible:
            entry.extended, entry.until_ms = True, max(entry.until_ms, at_ms + 1000 * HOLD_TTL_S)

    @rule(which=ANY, part=WISH, hears=HEARD)
    def keep(self, which: int, part: Wish, hears: bool) -> None:
        """The places of a reservation that are also in `part`, and nothing else of it."""
        entry, at_ms = self._some(which), self.now_ms()
        kept = Wish(entry.wish.seats & part.seats, min(entry.wish.floor, part.floor)) if entry else part
        if entry is None or not kept.size:
            return
        possible = entry.status == "pending_payment" and not entry.reference and not entry.overdue(at_ms)
        floor = {"GA1": kept.floor} if kept.floor else {}
        work = keep_only(self.state.db, self.state.redis_stock, entry.reservation_id, sorted(kept.seats), floor)
        with self._redis_away(not hears), contextlib.nullcontext() if possible else pytest.raises(Problem):
            self.run(work)
        if possible:
            entry.wish = kept
            if not hears:
                self.notes.astray.add(entry.reservation_id)

    # -- time and trouble ----------------------------------------------------------------------------------------------

    @rule(seconds=LATER_S, turn=st.sampled_from(["sweep", "scan", "both"]), hears=HEARD)
    def time_passes(self, seconds: float, turn: str, hears: bool) -> None:
        self.inventory.travel(round(seconds * 1000))
        with self._redis_away(not hears):
            if turn != "scan":
                self.run(self.state.expiry_worker.sweep())
            if turn != "sweep":
                with contextlib.suppress(EngineAway):
                    self.run(self.state.expiry_worker.scan())
        self.run(self._read(astray=not hears))

    @rule(reference=REFERENCE)
    def an_order_is_dead(self, reference: str) -> None:
        """Orders says so of every hold that is being paid too long under this reference."""
        at_ms = self.now_ms()
        late = [e for e in self.notes.entries.values() if e.status == "paying" and e.reference == reference]
        due = [e for e in late if e.until_ms + 1000 * GRACE_S < at_ms]
        if any(abs(e.until_ms + 1000 * GRACE_S - at_ms) < EDGE_MS for e in late):
            return
        self.inventory.orders.states = {reference: "cancelled"}
        self.run(self.state.expiry_worker.check_paying(EVENT, now_ms=at_ms))
        self.inventory.orders.states = {}  # the next scan asks, too
        for entry in due:
            entry.status = "expired"

    @rule()
    def remember(self) -> None:
        """Redis writes a snapshot."""

        async def dump() -> dict[bytes, bytes]:
            return {key: value async for key in self.redis.scan_iter() if (value := await self.redis.dump(key))}

        self.older = self.run(dump())

    @rule(back_in_time=st.booleans())
    def lose_the_engine(self, back_in_time: bool) -> None:
        async def lose() -> None:
            await self.redis.flushall()
            for key, value in (self.older if back_in_time else {}).items():
                await self.redis.restore(key, 0, value)
            if back_in_time and self.older:
                await self.redis.hset(f"inventory:{{{EVENT}}}:meta", "redis_instance_id", "the process before")

        self.run(lose())
        self.notes.lost, self.notes.believes_the_past = True, back_in_time and bool(self.older)
        self.notes.unwritten.clear()

    @rule()
    def rebuild(self) -> None:
        if not self.notes.lost:
            return
        self.run(self.state.redis_monitor.check())
        self.notes.lost = self.notes.believes_the_past = False
        self.notes.astray.clear()
        self.notes.unwritten.clear()

    @rule()
    def reconcile(self) -> None:
        """Two looks five seconds apart find and correct whatever went astray; a third finds nothing."""
        if self.notes.lost:
            return

        async def looks() -> list[ReconcilePass]:
            found = []
            for _ in range(3):
                found.append(await self.state.reconciler.reconcile(self.state.catalogue.layout(EVENT)))
                self.reconcile_s += 6
            return found

        self.reconcile_s += 6
        found = self.run(looks())
        self.run(self._read())
        self.notes.astray.clear()
        assert found[-1].differences == 0, found

    # -- what must be true at every moment -----------------------------------------------------------------------------

    def run(self, work: Any) -> Any:
        self.whole = False
        return self.loop.run(work)

    def now_ms(self) -> int:
        return now_ms() + self.state.redis_stock.clock_offset_ms

    @contextlib.contextmanager
    def _redis_away(self, deaf: bool) -> Iterator[None]:
        """The database decides, and Redis does not hear of it."""

        async def away(*_: object, **__: object) -> None:
            raise EngineAway

        with pytest.MonkeyPatch.context() as patch:
            for verb in FOLLOW_UPS if deaf else ():
                patch.setattr(self.state.redis_stock, verb, away)
            yield

    async def _read(self, *, astray: bool = False) -> None:
        """The database is as the notebook says; what was due may have ended, what was never written be a tombstone."""
        async with self.state.db.connect() as connection:
            rows = (await connection.execute(ROWS)).all()
        assert {row.reservation_id for row in rows if not row.tombstone} == set(self.notes.entries)
        for row in rows:
            gone = self.notes.unwritten.pop(row.reservation_id, None)
            if row.tombstone:
                assert row.reservation_id not in self.notes.entries
                if gone and astray:
                    self.notes.astray.add(row.reservation_id)
                continue
            entry = self.notes.entries[row.reservation_id]
            if row.status == "expired" and entry.overdue(self.now_ms()):
                entry.status = "expired"
                if astray:
                    self.notes.astray.add(row.reservation_id)
            assert (row.status, row.order_reference) == (entry.status, entry.reference)
            assert abs(row.reserved_until_ms - entry.until_ms) < EDGE_MS
            entry.until_ms = row.reserved_until_ms

    @invariant()
    def ledger_and_redis_are_as_written_down(self) -> None:
        self.run(self._read())
        stock = self.run(read_stock(self.state.db, EVENT))
        seats, floor = self.notes.taken(self.notes.entries.values())
        left = {s: x.available for s, x in stock.sections.items()}
        assert left == {"A": len(SEATS) - len(seats), "GA1": FLOOR - floor}
        assert all(x.available + x.held + x.sold == x.capacity for x in stock.sections.values())
        if not (self.notes.lost or self.notes.astray):
            redis_stock = self.run(read_redis_stock(self.redis, EVENT, self.state.catalogue.layout(EVENT)))
            apart = set(differences(redis_stock, stock))
            assert bool(apart) == bool(self.notes.unwritten), apart
            more = sum(entry.wish.size for entry in self.notes.unwritten.values())
            held = sum(x.held for x in stock.sections.values()) + more
            assert sum(redis_stock.counts.get(f"{s}:held", 0) for s in stock.sections) == held
        self.whole = True

    def teardown(self) -> None:
        try:
            if self.whole:
                self._everybody_goes_home()
        finally:
            self.loop.run(self._close())
            self.loop.close()

    def _everybody_goes_home(self) -> None:
        """Invariant 9: an hour later, with every order dead, nothing is held anywhere."""
        for _ in range(len(self.sleepers)):
            self.wake_or_die(0, True)
        self.inventory.orders.states = {"order-1": "cancelled", "order-2": "unknown"}
        self.inventory.travel(3_600_000)
        self.run(self.state.redis_monitor.check())
        for turn in (self.state.expiry_worker.sweep, self.state.expiry_worker.scan, self.state.expiry_worker.sweep):
            self.run(turn())
        for _ in range(3):
            self.reconcile_s += 6
            self.run(self.state.reconciler.reconcile(self.state.catalogue.layout(EVENT)))
        assert self.run(self.inventory.broken(at_rest=True)) == []

    async def _close(self) -> None:
        for sleeper in self.sleepers:
            await sleeper.die()
        await self.app.aclose()


def test_the_stock_keeps_what_it_promises(redis_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_room, "_start", lambda *_: None)
    run_machine(TheStock, redis_url, postgres_url, settings=bounded(examples=12, steps=30))
