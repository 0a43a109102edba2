"""The wait estimate grows only after a change, and then it has a reason."""

import heapq
import itertools
import math
import random
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from services.gateway.waiting_line.snapshot import LineSnapshot
from services.gateway.waiting_line.wait_estimate import EstimateAccuracy, WaitEstimate, WaitEstimator
from services.queue.admission.throughput import ThroughputMeter
from shared.contracts.frames import LineFrame, Throttled
from tests.gateway.frames import START_MS, lanes, line_frame, new_frame, snapshot
from tests.gateway.tokens import queue_token
from tests.support.running.suite import bearer

PATH = "/events/show/queue"
STATUS = f"{PATH}/status"

SEQS = (1, 40, 999, 5000)
REPEATABLE = settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
frame = partial(line_frame, calls_per_s=10.0)


STATES = st.sampled_from(["open", "open", "open", "draining", "paused", "last_chance", "prequeue"])
STEPS = st.lists(
    st.fixed_dictionaries({
        "after_ms": st.integers(1, 8000), "state": STATES, "rate_per_s": st.sampled_from([0.0, 2.0, 10.0, 50.0]),
        "calls_per_s": st.none() | st.floats(0, 60), "live_ratio": st.floats(0.01, 1), "called": st.integers(0, 300),
        "full": st.booleans(), "ready": st.sampled_from([True, True, True, False]),
        "sale_starts_at_ms": st.sampled_from([None, START_MS + 9000, START_MS + 60_000]),
    }),
    min_size=2, max_size=25,
)  # fmt: skip


def estimates_of(steps: list[dict[str, Any]]) -> list[tuple[WaitEstimate, dict[int, int | None]]]:
    """The estimate after each frame, and with it the waits of the fans in SEQS."""
    estimator, at_ms, head, history, shown = WaitEstimator(), START_MS, 0, [], None
    for step in steps:
        fields = dict(step)
        at_ms += fields.pop("after_ms")
        head += fields.pop("called")
        current = frame(at_ms, head=head, **fields)
        shown = snapshot(current, shown, estimate=estimator.observe(current))
        history.append((shown.estimate, {seq: shown.estimated_wait_s(shown.position(0, seq)) for seq in SEQS}))
    return history


def grows_without_change(history: list[tuple[WaitEstimate, dict[int, int | None]]]) -> bool:
    for seq in SEQS:
        last: int | None = None
        changed_ms = 0
        for estimate, waits in history:
            wait = waits[seq]
            if wait is not None:
                if last is not None and wait > last and estimate.at_ms == changed_ms:
                    return True
                last, changed_ms = wait, estimate.at_ms
    return False


@pytest.fixture(autouse=True)
def _fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.waiting_line.snapshot.now_ms", lambda: START_MS)


@settings(REPEATABLE, max_examples=30)
@given(steps=STEPS)
def test_an_estimate_never_grows_without_a_reason(steps: list[dict[str, Any]]) -> None:
    history = estimates_of(steps)
    assert not grows_without_change(history)
    assert all(estimate.reason for estimate, _ in history if estimate.per_place_s is None)


def test_an_estimate_that_follows_the_measurement_would_grow_without_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def follow_measurement(self: WaitEstimator, frame: LineFrame, before: object, per_place_s: float, _: float) -> None:
        self.current = WaitEstimate(per_place_s)

    monkeypatch.setattr(WaitEstimator, "_adjust", follow_measurement)
    common = {"state": "open", "rate_per_s": 10.0, "live_ratio": 1.0, "called": 0, "after_ms": 1000}
    steps = [{**common, "calls_per_s": measured} for measured in (9.0, 9.5, 8.6, 8.5)]
    assert grows_without_change(estimates_of(steps))


@settings(REPEATABLE, max_examples=20)
@given(noise=st.lists(st.floats(-0.6, 0.6), min_size=5, max_size=60), called=st.integers(0, 12))
def test_without_a_change_the_estimate_has_no_reason_and_never_grows(noise: list[float], called: int) -> None:
    steps = [{"after_ms": 1000, "calls_per_s": 10 + x, "called": called} for x in noise]
    history = estimates_of(steps)
    assert {estimate.reason for estimate, _ in history} == {None}
    for seq in SEQS:
        waits = [wait for _, waits in history if (wait := waits[seq]) is not None]
        assert waits == sorted(waits, reverse=True)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"rate_per_s": 5.0}, "rate-lowered"),
        ({"rate_per_s": 5.0, "throttled": Throttled(factor=0.5, reason="inventory-slow")}, "throttled"),
        ({"rate_per_s": 2.0, "throttled": Throttled(factor=0.2, reason="recovering")}, "recovering"),
        ({"state": "paused"}, "paused"),
        ({"rate_per_s": 0.0}, "paused"),
        ({"state": "last_chance"}, "stock-low"),
        ({"state": "sold_out"}, "stock-low"),
        ({"state": "closed"}, "unknown"),
        ({"ready": False}, "unknown"),
    ],
)
def test_a_sudden_change_is_the_reason_at_once(fields: dict[str, Any], reason: str) -> None:
    estimator = WaitEstimator()
    before = estimator.observe(frame())
    after = estimator.observe(frame(START_MS + 200, **fields))
    assert (after.reason, after.at_ms) == (reason, START_MS + 200)
    assert after.per_place_s is None or after.per_place_s > (before.per_place_s or 0)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"calls_per_s": 1.0, "full": True}, "room-full"),
        ({"calls_per_s": 1.0}, "slower"),
        ({"live_ratio": 1.0}, "fans-returned"),
    ],
)
def test_a_gradual_change_is_the_reason_only_after_it_has_lasted(fields: dict[str, Any], reason: str) -> None:
    estimator = WaitEstimator()
    estimator.observe(frame(live_ratio=0.4))
    reasons = [
        estimator.observe(frame(START_MS + s * 1000, **{"live_ratio": 0.4, **fields})).reason for s in range(1, 31)
    ]
    assert reasons[2] is None, "three seconds are too short"
    assert reasons[-1] == reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"stock_bound": True}, "stock-low"),
        ({"called_at_ms": START_MS - 1, "calls_per_s": 0.5}, "slower"),
        ({"called_at_ms": START_MS - 1, "calls_per_s": 0.5, "full": True}, "room-full"),
    ],
)
def test_without_calls_there_is_no_estimate_even_at_the_head(fields: dict[str, Any], reason: str) -> None:
    estimator = WaitEstimator()
    for s in range(60):
        estimator.observe(frame(START_MS + s * 1000, **(fields if s > 1 else {})))
    estimate = estimator.current
    assert (estimate.per_place_s, estimate.reason) == (None, reason)
    shown = snapshot(frame(), estimate=estimate)
    assert set(shown.estimates(1).values()) == {None}
    resumed = [estimator.observe(frame(START_MS + s * 1000, called_at_ms=START_MS + s * 1000)) for s in range(60, 75)]
    assert resumed[-1].per_place_s is not None, "calls have resumed"


def test_without_waiting_fans_a_time_without_calls_is_no_standstill() -> None:
    estimator, at_ms = WaitEstimator(), START_MS
    estimator.observe(frame(at_ms, called_at_ms=at_ms))
    estimator.observe(frame(at_ms + 600_000, head=10_000, called_at_ms=at_ms))
    after = estimator.observe(frame(at_ms + 601_000, head=10_000, tail=10_400, called_at_ms=at_ms))
    assert after.per_place_s is not None


def test_an_estimate_of_more_than_a_day_has_no_upper_end() -> None:
    shown = snapshot(frame(), estimate=WaitEstimate(120.0))
    assert list(shown.estimates(1650).values()) == [None, 86_400, None]


def test_the_range_contains_the_estimate_and_its_width_follows_the_uncertainty() -> None:
    narrow, wide = (snapshot(frame(), estimate=WaitEstimate(0.1, band=band)).estimates(1000) for band in (0.2, 0.7))
    assert (narrow["estimated_wait_low"], narrow["estimated_wait_high"]) == (79, 129)
    assert (wide["estimated_wait_low"], wide["estimated_wait_high"]) == (48, 210)
    assert list(snapshot(frame(), estimate=WaitEstimate(0.1)).estimates(1).values()) == [1, 0, 3]


def test_effects_of_a_lowered_rate_keep_that_reason() -> None:
    """The rate falls to a third, the room stays full, and the measured rate falls later."""
    estimator = WaitEstimator()
    estimator.observe(frame(calls_per_s=9.5, full=True))
    estimates = [
        estimator.observe(frame(START_MS + s * 1000, rate_per_s=3.0, calls_per_s=2.0, full=True)) for s in range(1, 46)
    ]
    assert {estimate.reason for estimate in estimates} == {"rate-lowered"}
    assert len({estimate.at_ms for estimate in estimates}) > 1, "later growth has the same reason"
    for s in range(46, 240):
        estimator.observe(frame(START_MS + s * 1000, rate_per_s=3.0, calls_per_s=0.5, full=True))
    assert estimator.current.reason == "room-full"


def test_the_estimate_follows_a_changed_rate_slowly_up_and_down() -> None:
    estimator = WaitEstimator()
    steady = estimator.observe(frame()).per_place_s or 0
    for rate in (100.0, 10.0):
        moved = [estimator.observe(frame(START_MS + s * 1000, rate_per_s=rate, calls_per_s=rate)) for s in range(1, 4)]
        assert all(steady / 1.5 < (estimate.per_place_s or 0) < steady * 1.5 for estimate in moved)


@pytest.mark.parametrize("shares", [(0.05, 1.0), (1.0, 0.05)], ids=["all return", "nearly all leave"])
def test_a_large_change_of_the_live_ratio_moves_the_estimate_in_bounded_steps(shares: tuple[float, float]) -> None:
    """At an unchanged rate, twenty times as many fans ahead are live as before, or a twentieth."""
    estimator, per_place_s = WaitEstimator(), list[float]()
    for s in range(200):
        estimate = estimator.observe(frame(START_MS + s * 1000, live_ratio=shares[s >= 20]))
        per_place_s.append(estimate.per_place_s or 0)
    changes = [max(a, b) / min(a, b) for a, b in zip(per_place_s, per_place_s[10:], strict=False)]
    assert max(changes) < 1.54, "the largest change within ten seconds"
    assert shares[1] * 0.08 < per_place_s[-1] < shares[1] * 0.12, "it reaches the new value"


def test_before_the_sale_the_estimate_includes_the_time_until_its_start() -> None:
    estimator = WaitEstimator()
    starts: dict[str, Any] = {"state": "prequeue", "calls_per_s": None, "sale_starts_at_ms": START_MS + 60_000}
    early = snapshot(frame(**starts), estimate=estimator.observe(frame(**starts)))
    assert early.estimated_wait_s(100) == 60 + 10
    on_sale = frame(START_MS + 60_000, sale_starts_at_ms=START_MS + 60_000)
    assert snapshot(on_sale, early, estimate=estimator.observe(on_sale)).estimated_wait_s(100) == 10
    later = frame(START_MS + 60_100, state="prequeue", sale_starts_at_ms=START_MS + 90_000)
    assert estimator.observe(later).reason == "start-moved"


def _error_metric(part: str) -> float:
    return REGISTRY.get_sample_value(f"gateway_estimate_error_seconds_{part}", {"estimate": "kept"}) or 0


def test_the_metrics_compare_estimates_with_the_actual_call() -> None:
    count, total, accuracy = _error_metric("count"), _error_metric("sum"), EstimateAccuracy()
    accuracy.evaluate(1, {0: 0}, now_s=0.0)
    for seq in range(1, 65):
        accuracy.record(0, seq, 30, low_s=25, high_s=32, now_s=100.0)
        accuracy.record(0, seq, 5, low_s=4, high_s=6, now_s=125.0)
    accuracy.evaluate(1, {0: 40}, now_s=133.0)
    assert (_error_metric("count"), _error_metric("sum")) == (count + 2, total + 6), (
        "places 16 and 32 are sampled: estimated 30 s, waited 33 s"
    )
    later = REGISTRY.get_sample_value("gateway_estimate_range_total", {"estimate": "kept", "call": "later"})
    assert (later or 0) >= 2, "the range ended at 32 s"
    for seq in range(1000, 100_000):
        accuracy.record(0, seq, 30, low_s=25, high_s=32, now_s=100.0)
    assert len(accuracy._samples) == 512
    accuracy.evaluate(2, {0: 0}, now_s=134.0)
    assert not accuracy._samples


async def test_throttling_is_in_the_fans_status_as_a_reason_and_in_the_public_line(fan, publish_frame) -> None:
    await publish_frame(new_frame(head=100))
    headers = bearer(queue_token())
    assert "throttled" not in (await fan.get(PATH)).json()
    throttled = {"factor": 0.5, "reason": "orders-slow"}
    await publish_frame(new_frame(head=100, rate_per_s=5.0, throttled=throttled))
    answer = (await fan.get(STATUS, headers=headers)).json()
    assert (answer["estimated_wait_time"], answer["estimate_changed"]["reason"]) == (80, "throttled")
    assert (await fan.get(PATH)).json()["throttled"] == throttled
    await publish_frame(new_frame(head=100, state="paused", throttled=throttled))
    answer = (await fan.get(STATUS, headers=headers)).json()
    assert (answer["estimated_wait_time"], answer["estimate_changed"]["reason"]) == (None, "paused")


@pytest.mark.parametrize(("room_state", "slug"), [("closed", "room-closed"), ("sold_out", "sold-out")])
async def test_a_claim_after_the_end_of_the_sale_is_refused_with_its_reason(
    fan, queue, publish_frame, room_state: str, slug: str
) -> None:
    await queue.open()
    await queue.join("holder")
    await queue.transition("close")
    await publish_frame(new_frame(head=1, state=room_state))
    for join_seq in (1, 500):
        answer = await fan.post(f"{PATH}/pass", headers=bearer(queue_token(join_seq=join_seq)))
        assert (answer.status_code, answer.json()["type"]) == (410, f"/problems/{slug}")


def test_a_fan_who_joined_after_a_change_does_not_get_its_reason() -> None:
    shown = snapshot(frame(), estimate=WaitEstimate(0.1, 0, "rate-lowered", START_MS))
    assert shown.estimate_changed(START_MS // 1000 - 1) is not None
    assert shown.estimate_changed(START_MS // 1000 + 1) is None


def test_fans_of_another_lane_are_a_reason_and_count_for_some_time_after_they_left() -> None:
    rules = [{"lane": 0, "name": "General"}, {"lane": 1, "name": "Presale", "weight": 3, "code_required": True}]

    def snapshot_at(at_ms: int, *, presale: int, before: LineSnapshot | None = None) -> LineSnapshot:
        return snapshot(frame(at_ms, lanes=lanes(_0=(0, 100), _1=(0, presale)), options={"lanes": rules}), before)

    alone = snapshot_at(1_000_000, presale=0)
    assert (alone.estimated_wait_s(40), alone.estimate_changed(0)) == (4, None)
    with_presale = snapshot_at(1_001_000, presale=5, before=alone)
    assert with_presale.estimated_wait_s(40) == 16
    assert (with_presale.estimate_changed(0) or {})["reason"] == "other-lanes"
    assert with_presale.estimate_changed(2_000) is None  # a fan who joined later had this wait from the start
    soon_after = snapshot_at(1_020_000, presale=0, before=with_presale)
    assert soon_after.estimated_wait_s(40) == 16
    assert snapshot_at(1_040_000, presale=0, before=soon_after).estimated_wait_s(40) == 4


# -- a simulated hour, compared with the calls -------------------------------------------------------------------------


PLACES, LIVE, SLOTS, HOUR_S, POLL_EVERY_S = 16_000, 0.7, 900, 3600, 10
RATES = {0: 6.0, 600: 2.0, 1200: 8.0, 2700: 5.0}  # second: the rate that the operator sets
THROTTLED = range(2800, 2980)  # to one half
PAUSED = range(3300, 3360)
SLOW = range(1800, 2600)  # sessions last four times as long, and the room is full
CHANGE_MAX = 1.6  # within ten seconds
CHANGES = {*RATES, *(end for span in (THROTTLED, PAUSED, SLOW) for end in (span.start, span.stop))}


@dataclass
class Estimate:
    """What one fan was shown at one moment."""

    at_s: int
    seq: int
    wait_s: int | None
    low_s: int | None
    high_s: int | None
    changed_ms: int


@dataclass
class Hour:
    """All estimates, and when the fans were called; `reasons` has the time and reason of each change."""

    estimates: list[Estimate] = field(default_factory=list)
    called_s: dict[int, int] = field(default_factory=dict)
    reasons: dict[int, Any] = field(default_factory=dict)

    def share_within(self, *, kept: bool) -> float:
        """The share of ranges that contained the actual wait; `kept`: only those with no change before the call."""
        within = [
            each.low_s <= called_s - each.at_s <= each.high_s
            for each in self.estimates
            if each.low_s is not None and each.high_s is not None
            and (called_s := self.called_s.get(each.seq)) is not None
            and not (kept and any(each.at_s < change <= called_s for change in CHANGES))
        ]  # fmt: skip
        assert len(within) > 100
        return sum(within) / len(within)

    def largest_unexplained_change(self) -> float:
        """The log of the largest factor between two successive estimates of a fan without a reason."""
        by_fan: dict[int, list[Estimate]] = {}
        for each in self.estimates:
            by_fan.setdefault(each.seq, []).append(each)
        return max(
            (abs(math.log((b.wait_s + POLL_EVERY_S / 2) / max(1, a.wait_s - POLL_EVERY_S / 2)))
             for fan in by_fan.values() for a, b in itertools.pairwise(fan)
             if a.wait_s is not None and b.wait_s is not None and a.changed_ms == b.changed_ms and a.wait_s > 120),
            default=0.0,
        )  # fmt: skip


def simulate_hour(seed: int) -> Hour:
    rng, meter, estimator, hour = random.Random(seed), ThroughputMeter(), WaitEstimator(), Hour()
    live = [rng.random() < LIVE for _ in range(PLACES + 1)]
    session_ends: list[float] = []
    head = calls = live_found = 0
    tokens, rate, shown, called_at = 0.0, 0.0, None, 0
    for t in range(HOUR_S):
        rate = RATES.get(t, rate)
        effective_rate = rate * (0.5 if t in THROTTLED else 1)
        while session_ends and session_ends[0] <= t:
            heapq.heappop(session_ends)
        tokens = min(effective_rate, tokens + effective_rate) if t not in PAUSED else 0.0
        while tokens >= 1 and len(session_ends) < SLOTS and head < PLACES:
            head += 1
            hour.called_s[head] = t
            if live[head]:
                heapq.heappush(session_ends, t + rng.expovariate(1 / (480 if t in SLOW else 120)))
                tokens, calls, live_found, called_at = tokens - 1, calls + 1, live_found + 1, t
        at_ms, is_open = START_MS + t * 1000, t not in PAUSED
        meter.record(at_ms, calls=calls, scanned=head, live=live_found, rate_per_s=effective_rate, wanted=is_open)
        measured = meter.calls_per_s
        frame = line_frame(
            at_ms, head=head, tail=PLACES, state="open" if is_open else "paused", rate_per_s=effective_rate,
            live_ratio=max(0.01, round(meter.live_ratio, 2)),
            calls_per_s=None if measured is None else round(measured, 3), full=len(session_ends) >= SLOTS,
            called_at_ms=START_MS + called_at * 1000,
            throttled=Throttled(factor=0.5, reason="orders-slow") if t in THROTTLED else None,
        )  # fmt: skip
        shown = snapshot(frame, shown, estimate=estimator.observe(frame))
        if shown.estimate.reason:
            hour.reasons[shown.estimate.at_ms] = (t, shown.estimate.reason)
        for seq in range(97, PLACES, 397) if t % POLL_EVERY_S == 5 else ():
            if (position := shown.position(0, seq)) > 0:
                wait_s, low_s, high_s = shown.estimates(position).values()
                changed_ms = shown.estimate.at_ms
                hour.estimates.append(Estimate(t, seq, wait_s, low_s=low_s, high_s=high_s, changed_ms=changed_ms))
    return hour


@pytest.mark.parametrize("seed", range(3))
def test_the_actual_wait_lies_in_the_range_and_no_estimate_jumps_without_a_reason(seed: int) -> None:
    hour = simulate_hour(seed)
    assert hour.share_within(kept=True) >= 0.88
    assert hour.share_within(kept=False) >= 0.4, "an estimate cannot foresee the nine changes of the hour"
    assert hour.largest_unexplained_change() <= math.log(CHANGE_MAX)
    named = {reason for _, reason in hour.reasons.values()}
    assert {"rate-lowered", "throttled", "room-full", "paused"} <= named
