"""Figures are computed from facts alone: what is not known is null, and a frame is preferred to an older count.

Samples are kept once however many consoles write, and charts get at most 4,000 points.
"""

from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from features.console.gathering import gatherer as module
from features.console.gathering.alarms import PREDICATES, AlarmClock, _summary
from features.console.gathering.history import (
    DAY_S,
    PATHS,
    POINTS_MAX,
    Record,
    Sample,
    Samples,
    step_ms_of,
    thinned,
)
from features.console.gathering.vitals import (
    CHARGED_TWICE,
    DUPLICATES,
    INVERSIONS,
    OVERSOLD,
    PARTS,
    Facts,
    Totals,
    make_vitals,
    proof_of,
)
from features.console.schemas import LineVitals, OrderVitals, ProofVitals, RoomVitals, StockVitals, Vitals
from features.console.tables import sample
from features.console.tests.admin import EVENT, FANS, HOLDS, INVARIANTS, LINE, ORDERS, ROOM, Admin
from features.console.tests.conftest import Console, Start, next_of
from shared.alarms import ALARMS
from shared.contracts.admin.inventory import HoldsFlow
from shared.contracts.admin.orders import OrdersFlow
from shared.contracts.admin.queue import LineFlow, RoomView
from shared.contracts.frames import LaneHead, LineFrame, LoadFrame, StockFrame, line_channel
from shared.messaging.snapshots import SnapshotPublisher
from shared.redis.client import Redis
from shared.report.invariants import CheckedInvariant
from shared.rules.sell_out import Held, forecast
from shared.runtime.clock import now_ms
from tests.support.wait import wait_until

AT_MS = 1_800_000_000_000


def line(**changes: Any) -> LineFrame:
    return LineFrame.model_validate({
        "event_id": EVENT, "epoch": 1, "version": 1, "ready": True, "at_ms": AT_MS, "state": "open", "rate_per_s": 40.0,
        "lanes": {0: {"head_seq": 100, "tail_seq": 400}, 1: {"head_seq": 20, "tail_seq": 100}}, "calls_per_s": 38.5,
        "live_ratio": 0.9, "config_version": 6, **changes,
    })  # fmt: skip


def stock(**changes: Any) -> StockFrame:
    sections = [
        {"section_id": "A", "available": 28, "held": 21, "sold": 51, "at_ms": AT_MS},
        {"section_id": "B", "available": 10, "held": 0, "sold": 0, "at_ms": AT_MS},
    ]
    frame = {"event_id": EVENT, "epoch": 1, "version": 1, "ready": True, "at_ms": AT_MS, "sections": sections}
    return StockFrame.model_validate(frame | changes)


def facts(**changes: Any) -> Facts:
    known: dict[str, Any] = {
        "event_id": EVENT, "line": line(), "stock": stock(), "room": RoomView.model_validate(ROOM),
        "flow": LineFlow.model_validate(LINE), "holds": HoldsFlow.model_validate(HOLDS),
        "orders": OrdersFlow.model_validate(ORDERS),
        "received_ms": {"queue": AT_MS - 400, "inventory": AT_MS - 4_000},
    }  # fmt: skip
    return Facts(**known | changes)


def vitals(**changes: Any) -> Vitals:
    return make_vitals(facts(**changes), at_ms=AT_MS)


def test_figures_come_from_the_newest_facts() -> None:
    made = vitals(notifiers=[load(streams_open=7, streams_rejected=1), load(streams_open=5)])
    assert made.ages == {"queue": 0.4, "inventory": 4.0, "orders": None, "notifier": None}
    assert (made.room.state, made.room.active, made.room.max_active) == ("open", 40, 400)
    assert made.room.version == 6, "in force is what the line obeys, not what is stored"
    assert (made.line.waiting, made.line.head, made.line.tail, made.line.called) == (380, 120, 500, 120)
    assert (made.rate.set_per_s, made.rate.effective_per_s, made.rate.called_per_s) == (50.0, 40.0, 38.5)
    assert (made.stock.free, made.stock.held, made.stock.sold, made.stock.total) == (38, 21, 51, 110)
    assert (made.stock.paying, made.stock.oldest_hold_s) == (2, 7.0)
    assert (made.orders.pending, made.orders.confirmed, made.orders.due) == (8, 50, 1)
    assert made.orders.oldest_due_s == 0.0, "what is due in the future is not late"
    assert (made.streams.open, made.streams.turned_away) == (12, 1)
    assert made.sell.per_min == 60
    found = forecast([1] * 60, orders=60, free=38, held=Held(21, 7.0, earlier=40, given_back=4))
    assert found is not None
    assert (made.sell.out_s, made.sell.out_earliest_s, made.sell.out_latest_s) == (
        found.expected_s, found.earliest_s, found.latest_s,
    )  # fmt: skip
    assert [(step.name, step.fans) for step in made.funnel] == [
        ("joined", 500), ("called", 120), ("claimed", 100), ("held", 90), ("ordered", 60), ("confirmed", 50),
    ]  # fmt: skip


def load(**changes: Any) -> LoadFrame:
    return LoadFrame.model_validate({
        "service": "notifier", "process": "n-1", "at_ms": AT_MS, **changes,
    })  # fmt: skip


def test_without_frames_the_figures_are_those_of_the_databases() -> None:
    made = vitals(line=None, stock=None)
    assert (made.room.state, made.line.waiting, made.line.head) == ("open", 380, None)
    assert (made.stock.free, made.stock.held, made.stock.sold, made.stock.total) == (30, 20, 50, 100)
    made = vitals(stock=stock(ready=False))
    assert made.stock.total == 100, "a frame that is not complete is not shown"
    assert vitals(flow=None).line.waiting == 380, "by the frame: everybody behind the heads"


def test_nothing_is_shown_of_what_nobody_answered() -> None:
    made = make_vitals(Facts(event_id=EVENT), at_ms=AT_MS)
    known = made.model_dump(exclude={"event_id", "at_ms", "ages", "funnel"}, exclude_none=True, exclude_defaults=True)
    assert not any(known.values()), known
    assert {step.fans for step in made.funnel} == {None}


def test_a_part_without_reports_is_not_silent_and_what_it_would_count_is_unknown() -> None:
    received = dict.fromkeys(PARTS, AT_MS)
    made = vitals(flow=None, orders=None, received_ms=received)
    assert made.without_reports == ["queue", "orders"]
    assert set(made.ages.values()) == {0.0}
    assert (made.wait.p50_s, made.orders.pending, made.sell.per_min, made.funnel[0].fans) == (None, None, None, None)
    assert made.line.waiting == 380, "by the frame"
    assert vitals(received_ms=received).without_reports == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"state": "paused"}, "paused"),
        ({"throttled": {"factor": 0.5, "reason": "orders-slow"}}, "orders-slow"),
        ({"stock_bound": True, "full": True}, "stock"),
        ({"full": True}, "full"),
    ],
)
def test_a_lower_rate_has_a_reason(changes: dict[str, Any], why: str | None) -> None:
    assert vitals(line=line(**changes)).rate.why == why


def test_rates_are_differences_of_totals_over_ten_seconds() -> None:
    made = vitals(
        line=line(calls_per_s=None),
        earlier=[
            Totals(AT_MS - 60_000, 0, 0, 0),
            Totals(AT_MS - 10_000, 60, 50, 30),
            Totals(AT_MS - 5_000, None, None, 40),
        ],
    )
    assert (made.rate.claimed_per_s, made.orders.confirmed_per_s) == (5.0, 2.0)
    assert made.rate.called_per_s == pytest.approx((vitals().line.called or 0) / 10 - 6), "counted while nobody waits"
    assert vitals().rate.claimed_per_s is None, "one total is no rate"
    assert vitals(earlier=[Totals(AT_MS - 10_000, 900, 900, 0)]).rate.claimed_per_s == 0, "a reset is no negative rate"


# -- alarms ------------------------------------------------------------------------------------------------------------


def test_every_predicate_is_of_an_alarm_and_has_a_summary() -> None:
    assert PREDICATES.keys() <= {alarm.name for alarm in ALARMS}
    for name in PREDICATES:
        assert _summary(name, vitals())


def healthy(**changes: Any) -> Vitals:
    received = dict.fromkeys(("queue", "inventory", "orders", "notifier"), AT_MS)
    return vitals(received_ms=received, proof=ProofVitals(oversold=0)).model_copy(update=changes)


def change(part: str, **values: Any) -> dict[str, Any]:
    return {part: getattr(healthy(), part).model_copy(update=values)}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("QueueVeryLong", change("line", waiting=1_000_001)),
        ("QueueLong", change("line", waiting=500_001)),
        ("LineStandsStill", change("rate", called_per_s=0.0)),
        ("Oversold", change("proof", oversold=1)),
        ("OrdersWait", change("orders", due=101)),
        ("OrdersNeedAPerson", change("orders", in_review=1)),
        ("ServiceDown", {"ages": {"queue": 0.1, "inventory": None, "orders": 0.1, "notifier": 0.1}}),
        ("ServiceDown", {"ages": {"queue": 0.1, "inventory": 0.2, "orders": 3.1, "notifier": 0.1}}),
    ],
)
def test_an_alarm_fires_by_the_figures(name: str, changes: dict[str, Any]) -> None:
    assert not [other for other, predicate in PREDICATES.items() if predicate(healthy())]
    assert PREDICATES[name](healthy(**changes))


def test_a_paused_room_and_an_empty_line_do_not_stand_still() -> None:
    for changes in (change("line", waiting=100), change("room", state="paused")):
        assert not PREDICATES["LineStandsStill"](healthy(**change("rate", called_per_s=0.0), **changes))


def test_an_alarm_fires_after_its_time_and_ends_at_once() -> None:
    clock, still = AlarmClock(), healthy(**change("rate", called_per_s=0.0))

    def at(seconds: int, now: Vitals) -> list[str]:
        return [alarm.name for alarm in clock.update(now.model_copy(update={"at_ms": AT_MS + seconds * 1000}))]

    assert at(0, still) == at(14, still) == []
    assert at(15, still) == ["LineStandsStill"]
    assert at(16, healthy()) == []
    assert at(17, still) == [], "its time begins anew"
    oversold = healthy(**change("proof", oversold=1), **change("orders", in_review=2))
    assert at(18, oversold) == ["Oversold", "OrdersNeedAPerson"], "the most urgent first"


# -- proof -------------------------------------------------------------------------------------------------------------


def checked(broken: str | None = None, missing: str | None = None) -> list[CheckedInvariant]:
    return [
        CheckedInvariant(service, name, name != broken, "")
        for service, names in INVARIANTS.items()
        for name in names
        if name != missing
    ]


@pytest.mark.parametrize(
    ("figure", "rules"),
    [("oversold", OVERSOLD), ("duplicates", DUPLICATES), ("inversions", INVERSIONS), ("charged_twice", CHARGED_TWICE)],
)
def test_a_broken_rule_shows_in_its_figure(figure: str, rules: tuple[str, ...]) -> None:
    assert getattr(proof_of(checked(), at_ms=1), figure) == 0
    for rule in rules:
        found = proof_of(checked(broken=rule), at_ms=1)
        assert {name: count for name, count in found.model_dump().items() if count} == {figure: 1, "at_ms": 1}
        assert getattr(proof_of(checked(missing=rule), at_ms=1), figure) is None, "not checked is not proven"


PATH = f"/console/api/events/{EVENT}/vitals"


def record(at_ms: int, waiting: float) -> Record:
    return Record(at_ms, (waiting, *[None] * (len(PATHS) - 1)))


async def test_two_processes_keep_a_sample_once_and_old_ones_go(postgres: AsyncEngine) -> None:
    one, other = Samples(postgres, kept_days=30), Samples(postgres, kept_days=30)
    now_s = now_ms() // 10_000 * 10
    await one.keep([Sample(EVENT, now_s, record(1, 5.0)), Sample(EVENT, now_s - 31 * DAY_S, record(1, 1.0))])
    await other.keep([Sample(EVENT, now_s, record(2, 6.0)), Sample("another", now_s, record(2, 7.0))])
    await one.forget()
    assert await other.between(EVENT, 0, now_ms()) == [Sample(EVENT, now_s, record(now_s * 1000, 5.0))]
    async with postgres.connect() as connection:
        assert await connection.scalar(select(func.count()).select_from(sample)) == 2


async def test_an_open_sale_is_sampled_though_nobody_watches(
    start: Start, redis: Redis, postgres: AsyncEngine, admin: Admin
) -> None:
    frame = LineFrame(
        event_id=EVENT, epoch=1, version=1, ready=True, at_ms=now_ms(), state="open", rate_per_s=1.0,
        lanes={0: LaneHead(head_seq=0, tail_seq=FANS)},
    )  # fmt: skip
    await admin.open()
    async with start() as one, start() as two:

        async def sampled() -> bool:
            await SnapshotPublisher(redis).publish(line_channel(EVENT), frame)
            for console in (one, two):
                console.app.state.deps.gathering._sampled_at_10s = 0
            async with postgres.connect() as connection:
                return (await connection.scalar(select(func.count()).select_from(sample)) or 0) > 0

        await wait_until(sampled, timeout_s=15)
        async with one.client() as client:
            found = (await client.get(PATH)).json()
    assert not {word for _, word in admin.questions} - {"flow", "room"}, "only what charts show"
    assert found["series"].keys() == set(PATHS)
    assert found["series"]["line.waiting"][-1] == FANS
    assert len(found["at_ms"]) == len(found["series"]["stock.sold"])


async def test_a_sale_in_which_nothing_moves_is_read_once_a_minute(
    console: Console, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathering = console.app.state.deps.gathering
    gatherer = gathering._gatherer(EVENT)
    later = now_ms() + 3_600_000  # than any version that the real queue publishes meanwhile
    frame = LineFrame(
        event_id=EVENT, epoch=1, version=later, ready=True, at_ms=now_ms(), state="open", rate_per_s=1.0, lanes={}
    )
    gathering._frames.on_line(frame.model_dump_json().encode())
    await gatherer.tick(watched=False)
    assert not gatherer.repeat(), "fans wait"
    quiet = {
        "line": LineVitals(waiting=0), "room": RoomVitals(active=0), "stock": StockVitals(held=0, paying=0),
        "orders": OrderVitals(pending=0, due=0),
    }  # fmt: skip
    gatherer.vitals = gatherer.vitals.model_copy(update=quiet)
    before = gatherer.ring.last
    admin.questions.clear()
    gathering._sampled_at_10s = 0
    await gathering.sample()
    assert not admin.questions
    kept = list(gatherer.ring.between(before.at_ms, now_ms()))
    assert [one.values for one in kept] == [before.values] * 2, "the last record again"
    gathering._frames.on_line(
        frame.model_copy(update={"version": later + 1, "at_ms": now_ms()}).model_dump_json().encode()
    )
    assert gatherer.repeat()
    gathering._frames.on_line(
        frame.model_copy(update={"version": later + 2, "state": "paused"}).model_dump_json().encode()
    )
    assert not gatherer.repeat(), "the frame has changed"
    gathering._frames.on_line(frame.model_copy(update={"version": later + 3}).model_dump_json().encode())
    assert gatherer.repeat()
    monkeypatch.setattr(module, "QUIET_S", 0.0)
    assert not gatherer.repeat(), "it was read too long ago"


async def test_the_last_hour_comes_from_memory_a_second_apart(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    began_ms, time = now_ms(), {"to_ms": now_ms() + 60_000}
    monkeypatch.setattr(module, "now_ms", lambda: began_ms + 10 * (now_ms() - began_ms))  # ten seconds are one
    async with console.stream() as stream:
        for _ in range(3):
            await next_of(stream, "vitals")
        async with console.client() as client:
            found = (await client.get(PATH, params=time)).json()
            while len(found["at_ms"]) < 3:  # on a busy machine two of them may be of one second
                await next_of(stream, "vitals")
                found = (await client.get(PATH, params=time)).json()
            assert found["series"]["stock.free"][-1] == 100
            assert (await client.get(PATH, params={"to_ms": 1})).json()["at_ms"] == []
            assert (await client.get(PATH, params={"step_s": 0})).status_code == 422


def test_there_are_never_more_than_four_thousand_points() -> None:
    records = [record(second * 1000, second) for second in range(30_000)]
    step_ms = step_ms_of(0, 30_000_000, 1)
    assert step_ms == 8_000
    found = thinned(records, step_ms)
    assert len(found) == 30_000 // 8 <= POINTS_MAX
    assert found[0] == record(7_000, 7), "the last of each step, none made up"
    assert len(thinned(records, 1000)) == POINTS_MAX
