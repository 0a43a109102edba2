"""Model test of the stock: after any order of requests, payments, dying processes and lost Redis data nothing is sold
twice or lost, and in the end nothing stays held (invariants 1, 2 and 9).
"""

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule
from redis.exceptions import ConnectionError as RedisConnectionError

from services.inventory import app as inventory_app
from services.inventory.redis_keys import Keys
from services.inventory.reservations import payment
from services.inventory.reservations.partial_release import keep_only
from services.inventory.reservations.reserve import Reserved
from services.inventory.store.reservations import ReservationRow
from shared.contracts.admin.inventory import ReconcilePass
from shared.contracts.inventory import PaymentStep
from shared.errors.problems import Problem
from tests.inventory.conftest import EVENT
from tests.properties.examples import bounded, run_machine
from tests.properties.paused_process import PausedProcess
from tests.properties.stock_model import GRACE_S, HOLD_TTL_S, PAY_TTL_S, SEATS, Reservation, Selection
from tests.properties.stock_system import EDGE_MS, StockSystem

FAN = st.sampled_from(["ann", "ben", "cyd", "dee"])
SELECTION = st.builds(Selection, st.frozensets(st.sampled_from(SEATS), max_size=2), st.integers(0, 3)).filter(
    lambda selection: selection.size
)
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
            over_limit = {"limit-exceeded"} & {self.model.expected_outcome(holder, other)}
            assert self.run(self._reserve(holder, other, key)).slug in {"idempotency-key-reused", *over_limit}

    @rule(holder=FAN, selection=SELECTION, point=st.sampled_from(["after Redis", "after the database"]))
    def pause_a_process(self, holder: str, selection: Selection, point: str) -> None:
        if len(self.paused) >= PAUSED_MAX:
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
        requested = process.request.selection
        seats, ga = frozenset(seat[2] for seat in requested.seats), sum(quantity for _, quantity, _ in requested.ga)
        answer = process.answer.exception() or process.answer.result()
        return self._record(process.request.holder, Selection(seats, ga), answer)

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

    @rule(which=ANY, part=SELECTION, arrive=ARRIVE)
    def keep_a_part(self, which: int, part: Selection, arrive: bool) -> None:
        """Releases everything of a reservation that is not in `part`."""
        reservation, at_ms = self._pick(which), self.now_ms()
        if reservation is None:
            return
        held = reservation.selection
        kept = Selection(held.seats & part.seats, min(held.ga, part.ga))
        if not kept.size:
            return
        is_pending = reservation.status == "pending_payment" and not reservation.is_overdue(at_ms)
        possible = is_pending and not reservation.reference
        ga = {"GA1": kept.ga} if kept.ga else {}
        work = keep_only(
            self.state.db, self.state.redis_stock, EVENT, reservation.reservation_id, sorted(kept.seats), ga
        )
        with self.redis_updates(arrive=arrive), contextlib.nullcontext() if possible else pytest.raises(Problem):
            self.run(work)
        if possible:
            reservation.selection = kept
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
