"""Model test of the stock: after any order of requests, payments, dying processes and lost Redis data nothing is sold
twice or lost, and in the end nothing stays held (invariants 1, 2 and 9).

The inventory service under a model test: set-up, clock, outages of Redis, and the comparison with the model.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import AsyncMock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from redis.exceptions import ConnectionError as RedisConnectionError
from sqlalchemy import text

from services.inventory import app as inventory_app
from services.inventory.api.reservations import ReserveBody, build_request
from services.inventory.layout import selection as places
from services.inventory.reconcile.redis_diff import differences, read_redis_stock
from services.inventory.redis_keys import Keys
from services.inventory.reservations import payment
from services.inventory.reservations.partial_release import keep_only
from services.inventory.reservations.reserve import Reserved
from services.inventory.store.reservations import ReservationRow
from services.inventory.store.snapshot import read_stock
from services.inventory.tables import metadata
from shared.contracts.admin.inventory import ReconcilePass
from shared.contracts.event_parts.price_types import QUOTA_MAX
from shared.contracts.inventory import Binding, PaymentStep
from shared.errors.problems import Problem
from shared.runtime.clock import now_ms
from shared.security.tokens import Pass
from tests.inventory.conftest import EVENT, Inventory, event_file, settings_of, start
from tests.properties.examples import bounded, run_machine
from tests.properties.paused_process import PausedProcess
from tests.properties.stock_model import (
    CHILDREN_MAX,
    GA_CAPACITY,
    GRACE_S,
    HOLD_TTL_S,
    LIVE_MAX,
    PAY_TTL_S,
    SEATS,
    TICKETS_MAX,
    Reservation,
    Selection,
    StockModel,
)

EDGE_MS = 2_000  # the test reads the clock a little before or after the servers do
ROWS = text(
    "SELECT reservation_id, status, order_reference, reserved_until_ms, fingerprint = '' AS tombstone "
    "FROM inventory.reservation ORDER BY reservation_id"
)


TYPE_ROWS = text(
    "SELECT type_id, CAST(sum(n) AS int) AS n FROM ("
    " SELECT event_id, reservation_id, type_id, 1 AS n FROM inventory.reservation_seat"
    " UNION ALL SELECT event_id, reservation_id, type_id, quantity FROM inventory.reservation_ga) AS line "
    "JOIN inventory.reservation USING (event_id, reservation_id) "
    "WHERE type_id <> '' AND status IN ('pending_payment', 'paying', 'confirmed') GROUP BY type_id"
)
TYPES = [
    {"type_id": "adult", "name": "Adult"},
    {"type_id": "child", "name": "Child", "percent": 50, "quota": CHILDREN_MAX},
    {"type_id": "carer", "name": "Companion", "price_minor": 0, "companion_of": ["child"]},
]


def ga_of(selection: Selection) -> list[dict[str, Any]]:
    """The GA tickets of a selection by price type."""
    usual = selection.ga - selection.ga_children - selection.ga_carers
    of_types = (("child", selection.ga_children), ("carer", selection.ga_carers))
    parts = [{"section_id": "GA1", "quantity": usual}] if usual else []
    return parts + [{"section_id": "GA1", "quantity": n, "type_id": type_id} for type_id, n in of_types if n]


def typed(selection: Selection) -> dict[str, Any]:
    """The price types of a selection as requests name them."""
    return {"types": dict.fromkeys(sorted(selection.child_seats), "child"), "ga": ga_of(selection)}


def selection_of(requested: places.Selection) -> Selection:
    """As the model has it."""
    seats = frozenset(seat.seat_id for seat in requested.seats)
    children = frozenset(seat.seat_id for seat in requested.seats if seat.type_id == "child")
    ga = {line.type_id: line.quantity for line in requested.ga}
    return Selection(seats, sum(ga.values()), children, ga.get("child", 0), ga.get("carer", 0))


class StockSystem(RuleBasedStateMachine):
    """One inventory on real servers whose background work runs only as a rule, and paused processes of it."""

    redis_url: str
    postgres_url: str

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.Runner()
        self.model, self.paused, self.key_count = StockModel(), list[PausedProcess](), 0
        self.bindings = dict[str, Binding]()  # the latest of each reservation
        self.invariants_held, self.reconcile_s, self.snapshot = False, 0.0, dict[bytes, bytes]()
        self.app = start(settings_of(self.redis_url, self.postgres_url))
        self.loop.run(self._open())

    async def _open(self) -> None:
        self.inventory: Inventory = await anext(self.app)
        self.state, self.redis = self.inventory.state, self.inventory.state.redis_stock.redis
        await self.redis.flushall()
        async with self.state.db.begin() as connection:
            await connection.execute(text(f"TRUNCATE {', '.join(map(str, metadata.sorted_tables))}"))
        file = event_file(
            hold_ttl_s=HOLD_TTL_S, pay_ttl_s=PAY_TTL_S, grace_s=GRACE_S, tickets_per_customer=TICKETS_MAX,
            active_reservations_per_customer=LIVE_MAX,
        )  # fmt: skip
        seated, _, ga = file["sections"]
        file["sections"] = [seated | {"rows": 2, "seats_per_row": 3}, ga | {"capacity": GA_CAPACITY}]
        file["price_types"] = TYPES
        assert (await self.inventory.put(file)).is_success
        await self.state.redis_monitor.check()
        self.state.reconciler._clock = lambda: self.reconcile_s

    def run(self, work: Any) -> Any:
        self.invariants_held = False
        return self.loop.run(work)

    def now_ms(self) -> int:
        return now_ms() + self.state.redis_stock.clock_offset_ms

    def request(self, holder: str, selection: Selection, key: str) -> Any:
        at = now_ms() // 1000
        admission = Pass(EVENT, holder, f"jti-{holder}", 1, 0, 7, 6, at, at + 900)
        body = ReserveBody.model_validate({"seats": sorted(selection.seats), **typed(selection)})
        return build_request(self.state.catalogue.layout(EVENT), admission, body, key)

    def new_key(self) -> str:
        self.key_count += 1
        return f"key-{self.key_count}"

    @contextlib.contextmanager
    def redis_updates(self, *, arrive: bool) -> Iterator[None]:
        """While updates do not arrive, the database decides and Redis misses it."""
        with pytest.MonkeyPatch.context() as patch:
            if not arrive:
                patch.setattr(self.state.redis_stock, "follow", AsyncMock(side_effect=RedisConnectionError))
            yield

    async def read_database(self, *, redis_missed_it: bool = False) -> None:
        """Compares every row with the model, and takes over what may have happened: due holds that have expired, and
        tombstones of reservations that were never written.
        """
        async with self.state.db.connect() as connection:
            rows = (await connection.execute(ROWS)).all()
        assert {row.reservation_id for row in rows if not row.tombstone} == set(self.model.reservations)
        for row in rows:
            unwritten = self.model.unwritten.pop(row.reservation_id, None)
            if row.tombstone:
                assert row.reservation_id not in self.model.reservations
                if unwritten and redis_missed_it:
                    self.model.out_of_sync.add(row.reservation_id)
                continue
            reservation = self.model.reservations[row.reservation_id]
            if row.status == "expired" and reservation.is_overdue(self.now_ms()):
                reservation.status = "expired"
                if redis_missed_it:
                    self.model.out_of_sync.add(row.reservation_id)
            assert (row.status, row.order_reference) == (reservation.status, reservation.reference)
            assert abs(row.reserved_until_ms - reservation.until_ms) < EDGE_MS
            reservation.until_ms = row.reserved_until_ms

    async def types_in_database(self) -> dict[str, int]:
        """Live and sold tickets of each price type but the usual one."""
        async with self.state.db.connect() as connection:
            return {row.type_id: row.n for row in await connection.execute(TYPE_ROWS)}

    @invariant()
    def database_and_redis_match_the_model(self) -> None:
        self.run(self.read_database())
        stock = self.run(read_stock(self.state.db, EVENT))
        seats, ga = self.model.taken(self.model.reservations.values())
        available = {section_id: section.available for section_id, section in stock.sections.items()}
        types = self.model.types_taken(self.model.reservations.values())
        assert available == {
            "A": len(SEATS) - len(seats), "GA1": GA_CAPACITY - ga, "~child": CHILDREN_MAX - types["child"],
            "~carer": QUOTA_MAX - types["carer"],
        }  # fmt: skip
        assert self.run(self.types_in_database()) == {name: n for name, n in types.items() if n}
        assert all(x.available + x.held + x.sold == x.capacity for x in stock.sections.values())
        if not (self.model.redis_lost or self.model.out_of_sync):
            redis_stock = self.run(read_redis_stock(self.redis, EVENT, self.state.catalogue.layout(EVENT)))
            found = set(differences(redis_stock, stock))
            assert bool(found) == bool(self.model.unwritten), found
            selections = [reservation.selection for reservation in self.model.unwritten.values()]
            unwritten = sum(each.size + each.types.get("child", 0) + each.types.get("carer", 0) for each in selections)
            held = sum(x.held for x in stock.sections.values()) + unwritten
            assert sum(redis_stock.counts.get(f"{s}:held", 0) for s in stock.sections) == held
        self.invariants_held = True

    def teardown(self) -> None:
        try:
            if self.invariants_held:
                self._nothing_stays_held()
        finally:
            self.loop.run(self._close())
            self.loop.close()

    def _nothing_stays_held(self) -> None:
        """Invariant 9: an hour later, with every process dead and every order ended, nothing is held."""
        for process in self.paused:
            self.run(process.die())
        self.paused.clear()
        self.inventory.orders.states = {"order-1": "cancelled", "order-2": "unknown"}
        self.inventory.travel(3_600_000)
        self.run(self.state.redis_monitor.check())
        for expire in (self.state.expiry_worker.sweep, self.state.expiry_worker.scan, self.state.expiry_worker.sweep):
            self.run(expire())
        for _ in range(3):
            self.reconcile_s += 6
            self.run(self.state.reconciler.reconcile(self.state.catalogue.layout(EVENT)))
        assert self.run(self.inventory.violations(at_rest=True)) == []

    async def _close(self) -> None:
        for process in self.paused:
            await process.die()
        await self.app.aclose()


FAN = st.sampled_from(["ann", "ben", "cyd", "dee"])
CHILD_SEATS, CHILDREN, CARERS = st.frozensets(st.sampled_from(SEATS), max_size=3), st.integers(0, 2), st.integers(0, 1)
PLACES = st.builds(Selection, st.frozensets(st.sampled_from(SEATS), max_size=2), st.integers(0, 3)).filter(
    lambda selection: selection.size
)
SELECTION = st.builds(Selection.typed, PLACES, CHILD_SEATS, CHILDREN, CARERS)
REFERENCE = st.sampled_from(["order-1", "order-2"])
VERB = st.sampled_from(["begin", "begin", "confirm", "end", "unbind", "release", "reacquire"])
LATER_S = st.sampled_from([0.0, 4.0, 6.0, PAY_TTL_S + GRACE_S + 1, HOLD_TTL_S + GRACE_S + 1])
ARRIVE = st.sampled_from([True, True, True, False])
PAUSED_MAX = 4
ANY = st.integers(0, 999)


class StockMachine(StockSystem):
    """The rules: what fans, orders, processes and Redis may do."""

    # -- holds ---------------------------------------------------------------------------------------------------------

    async def _reserve(self, holder: str, selection: Selection, key: str) -> Any:
        try:
            return await self.state.batchers[EVENT].reserve(self.request(holder, selection, key))
        except Problem as problem:
            return problem

    def _record(self, holder: str, selection: Selection, answer: Any) -> str:
        """Applies an answer to the model and returns its outcome."""
        if isinstance(answer, Problem):
            return answer.slug
        unwritten = self.model.unwritten.pop(answer.reservation_id, None)
        if isinstance(answer, Reserved):
            self.model.write(unwritten or Reservation(answer.reservation_id, holder, selection, answer.until_ms))
            return "held"
        assert isinstance(answer, ReservationRow)
        if unwritten:
            self.model.write(unwritten)
        known = self.model.reservations[answer.reservation_id]
        assert (known.holder, known.requested) == (holder, selection), "the reservation of another request"
        return "again"

    @rule(requests=st.lists(st.tuples(FAN, SELECTION), min_size=1, max_size=3, unique_by=lambda request: request[0]))
    def hold(self, requests: list[tuple[str, Selection]]) -> None:
        """Concurrent requests of several fans. The outcome of a single request is exactly that of the model."""
        [(holder, selection), *others] = requests
        predictable = not others and self.model.is_predictable(holder, selection, self.now_ms() + EDGE_MS)
        expected = self.model.expected_outcome(holder, selection)

        async def reserve_all() -> list[Any]:
            return await asyncio.gather(*(self._reserve(*request, self.new_key()) for request in requests))

        answers = self.run(reserve_all())
        outcomes = [self._record(*request, answer) for request, answer in zip(requests, answers, strict=True)]
        assert not predictable or outcomes == [expected], f"{outcomes}, not {expected}"

    @rule(holder=FAN, selection=SELECTION, other=SELECTION)
    def repeat_a_key(self, holder: str, selection: Selection, other: Selection) -> None:
        """The same key again, with the same body and with another. A key that was answered with the reservation of
        another, for the same places, has made none.
        """
        key = self.new_key()
        first = self.run(self._reserve(holder, selection, key))
        if self._record(holder, selection, first) != "held":
            return
        again = self.run(self._reserve(holder, selection, key))
        assert isinstance(again, ReservationRow)
        assert again.reservation_id == first.reservation_id
        if other != selection and first.reservation_id == self.request(holder, selection, key).reservation_id:
            over_limit = {"limit-exceeded", "price-type-refused"} & {self.model.expected_outcome(holder, other)}
            assert self.run(self._reserve(holder, other, key)).slug in {"idempotency-key-reused", *over_limit}

    @rule(holder=FAN, selection=SELECTION, point=st.sampled_from(["after Redis", "after the database"]))
    def pause_a_process(self, holder: str, selection: Selection, point: str) -> None:
        if len(self.paused) >= PAUSED_MAX:
            return

        if not selection.is_allowed:
            return

        async def start_process() -> PausedProcess:
            request = self.request(holder, selection, self.new_key())
            process = PausedProcess(self.state.db, self.state.redis_stock, request, point)
            if await process.pauses():
                self.paused.append(process)
            return process

        process = self.run(start_process())
        if granted := process.redis_stock.granted:
            unwritten = Reservation(granted.reservation_id, holder, selection, granted.until_ms)
            self.model.unwritten[granted.reservation_id] = unwritten
        else:
            self._record_answer_of(process)

    def _record_answer_of(self, process: PausedProcess) -> str:
        answer = process.answer.exception() or process.answer.result()
        return self._record(process.request.holder, selection_of(process.request.selection), answer)

    @rule(which=ANY, dies=st.booleans())
    def resume_or_kill_a_process(self, which: int, dies: bool) -> None:
        if not self.paused:
            return
        process = self.paused.pop(which % len(self.paused))
        self.run(process.die() if dies else process.resume())
        if not dies and process.redis_stock.granted is not None:
            outcome = self._record_answer_of(process)
            assert outcome in ("held", "again", "hold-expired", "unavailable", "seats-taken", "sold-out")
            if outcome in ("seats-taken", "sold-out"):
                self.model.unwritten.pop(process.request.reservation_id, None)

    # -- changes of a reservation --------------------------------------------------------------------------------------

    def _pick(self, which: int) -> Reservation | None:
        """A reservation, unless it ends about now, when its state is not predictable."""
        reservations = list(self.model.reservations.values())
        picked = reservations[which % len(reservations)] if reservations else None
        ends_now = picked and picked.is_live and abs(picked.until_ms + 1000 * GRACE_S - self.now_ms()) < EDGE_MS
        return None if ends_now else picked

    @rule(which=ANY, verb=VERB, reference=REFERENCE, arrive=ARRIVE)
    def pay(self, which: int, verb: str, reference: str, arrive: bool) -> None:
        reservation, at_ms = self._pick(which), self.now_ms()
        if reservation is None:
            return
        step = PaymentStep(event_id=EVENT, reservation_id=reservation.reservation_id, order_reference=reference)
        if verb == "unbind":
            step = step.model_copy(update={"binding": self.bindings.get(reservation.reservation_id)})
            verb = verb if step.binding else "end"
        before = (reservation.status, reservation.reference)
        transition = payment.END if verb == "unbind" else getattr(payment, verb.upper())
        with self.redis_updates(arrive=arrive):
            [result] = self.run(self.state.payments.take(transition, [step]))
        if result.binding is not None:
            self.bindings[reservation.reservation_id] = result.binding
        expected = self.model.step(verb, reservation, reference, at_ms)
        assert result.outcome == expected, f"{verb} by {reference} of {reservation}"
        assert result.order_reference == reservation.reference
        if not arrive and before != (reservation.status, reservation.reference):
            self.model.out_of_sync.add(reservation.reservation_id)

    @rule(which=ANY, arrive=ARRIVE)
    def cancel(self, which: int, arrive: bool) -> None:
        reservation = self._pick(which)
        if reservation is None:
            return
        request = self.inventory.fan_request("DELETE", reservation.reservation_id, reservation.holder)
        was_pending = reservation.status == "pending_payment"
        with self.redis_updates(arrive=arrive):
            try:
                status = self.run(request).status_code
            except RedisConnectionError:
                status = 204
        if was_pending:
            assert status in ((204,) if arrive else (204, 500, 503))
            reservation.status = "cancelled"
            if not arrive:
                self.model.out_of_sync.add(reservation.reservation_id)
        else:
            assert status == {"paying": 409, "confirmed": 409, "expired": 410, "cancelled": 204}[reservation.status]

    @rule(which=ANY)
    def extend(self, which: int) -> None:
        reservation, at_ms = self._pick(which), self.now_ms()
        if reservation is None:
            return
        is_pending = reservation.status == "pending_payment" and not reservation.is_overdue(at_ms)
        possible = is_pending and not reservation.extended
        request = self.inventory.fan_request("POST", reservation.reservation_id, reservation.holder, more="/extend")
        answer = self.run(request)
        assert answer.is_success == possible, answer.text
        if possible:
            reservation.extended = True
            reservation.until_ms = max(reservation.until_ms, at_ms + 1000 * HOLD_TTL_S)

    @rule(which=ANY, part=PLACES, arrive=ARRIVE)
    def keep_a_part(self, which: int, part: Selection, arrive: bool) -> None:
        """Releases everything of a reservation that is not in `part`; no carer stays without a child."""
        reservation, at_ms = self._pick(which), self.now_ms()
        if reservation is None:
            return
        kept = reservation.selection.kept(part.seats, part.ga)
        if not kept.size:
            return
        is_pending = reservation.status == "pending_payment" and not reservation.is_overdue(at_ms)
        possible = is_pending and not reservation.reference and (kept == reservation.selection or kept.is_allowed)
        layout = self.state.catalogue.layout(EVENT)
        ga = {("GA1", part.get("type_id", "")): part["quantity"] for part in ga_of(kept)}
        work = keep_only(
            self.state.db, self.state.redis_stock, layout, reservation.reservation_id, sorted(kept.seats), ga
        )
        with self.redis_updates(arrive=arrive), contextlib.nullcontext() if possible else pytest.raises(Problem):
            self.run(work)
        if possible:
            reservation.selection = kept
            if not arrive:
                self.model.out_of_sync.add(reservation.reservation_id)

    @rule(which=ANY, child_seats=CHILD_SEATS, children=CHILDREN, carers=CARERS, arrive=ARRIVE)
    def change_types(self, which: int, child_seats: frozenset[str], children: int, carers: int, arrive: bool) -> None:
        """Changes the price types of a live hold. What must happen is predictable unless Redis lags behind."""
        reservation, at_ms = self._pick(which), self.now_ms()
        if reservation is None:
            return
        wanted = reservation.selection.typed(child_seats, children, carers)
        expected = self.model.expected_change(reservation, wanted, at_ms)
        request = self.inventory.fan_request(
            "POST", reservation.reservation_id, reservation.holder, more="/types", body=typed(wanted)
        )
        with self.redis_updates(arrive=arrive):
            answer = self.run(request)
        outcome = "changed" if answer.is_success else answer.json()["type"].rsplit("/")[-1]
        assert expected is None or outcome in expected, f"{outcome}, not {expected}"
        if outcome == "changed":
            assert reservation.status == "pending_payment"
            assert wanted.is_allowed
            reservation.selection = wanted
        if not arrive:
            self.model.out_of_sync.add(reservation.reservation_id)

    # -- time and failures ---------------------------------------------------------------------------------------------

    @rule(seconds=LATER_S, expiry=st.sampled_from(["sweep", "scan", "both"]), arrive=ARRIVE)
    def time_passes(self, seconds: float, expiry: str, arrive: bool) -> None:
        self.inventory.travel(round(seconds * 1000))
        with self.redis_updates(arrive=arrive):
            if expiry != "scan":
                self.run(self.state.expiry_worker.sweep())
            if expiry != "sweep":
                with contextlib.suppress(RedisConnectionError):
                    self.run(self.state.expiry_worker.scan())
        self.run(self.read_database(redis_missed_it=not arrive))

    @rule(reference=REFERENCE)
    def an_order_is_cancelled(self, reference: str) -> None:
        """Orders answers so for every overdue payment of this order."""
        at_ms = self.now_ms()
        paying = [r for r in self.model.reservations.values() if r.status == "paying" and r.reference == reference]
        due = [reservation for reservation in paying if reservation.until_ms + 1000 * GRACE_S < at_ms]
        if any(abs(reservation.until_ms + 1000 * GRACE_S - at_ms) < EDGE_MS for reservation in paying):
            return
        self.inventory.orders.states = {reference: "cancelled"}
        self.run(self.state.expiry_worker.check_paying(EVENT, now_ms=at_ms))
        self.inventory.orders.states = {}  # the next scan requests the states, too
        for reservation in due:
            reservation.status = "expired"

    @rule()
    def redis_writes_a_snapshot(self) -> None:
        async def dump() -> dict[bytes, bytes]:
            return {key: value async for key in self.redis.scan_iter() if (value := await self.redis.dump(key))}

        self.snapshot = self.run(dump())

    @rule(restored=st.booleans())
    def redis_loses_its_data(self, restored: bool) -> None:
        """With or without a restart from its last snapshot."""

        async def lose() -> None:
            await self.redis.flushall()
            for key, value in (self.snapshot if restored else {}).items():
                await self.redis.restore(key, 0, value)
            if restored and self.snapshot:
                await self.redis.hset(Keys.of(EVENT).meta, "redis_instance_id", "the process before")

        self.run(lose())
        self.model.redis_lost, self.model.redis_outdated = True, restored and bool(self.snapshot)
        self.model.unwritten.clear()

    @rule()
    def rebuild(self) -> None:
        if not self.model.redis_lost:
            return
        self.run(self.state.redis_monitor.check())
        self.model.redis_lost = self.model.redis_outdated = False
        self.model.out_of_sync.clear()
        self.model.unwritten.clear()

    @rule()
    def reconcile(self) -> None:
        """Two passes six seconds apart find and correct all drift; a third finds nothing."""
        if self.model.redis_lost:
            return

        async def reconcile_thrice() -> list[ReconcilePass]:
            passes = []
            for _ in range(3):
                passes.append(await self.state.reconciler.reconcile(self.state.catalogue.layout(EVENT)))
                self.reconcile_s += 6
            return passes

        self.reconcile_s += 6
        passes = self.run(reconcile_thrice())
        self.run(self.read_database())
        self.model.out_of_sync.clear()
        assert passes[-1].differences == 0, passes


def test_the_stock_matches_its_model_in_random_histories(
    redis_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory_app, "_start", lambda *_: None)
    run_machine(StockMachine, redis_url, postgres_url, settings=bounded(examples=4, steps=30))
