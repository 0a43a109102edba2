"""The wait estimate never grows without a change, and then it names the reason."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from services.gateway.waiting_line.snapshot import LineSnapshot
from services.gateway.waiting_line.wait_estimate import EstimateAccuracy, WaitEstimate, WaitEstimator
from shared.contracts.frames import LaneHead, LineFrame, Throttled
from tests.gateway.line.test_status import PATH, STATUS, bearing, token

START_MS = 1_800_000_000_000
SEQS = (1, 40, 999, 5000)


def frame(at_ms: int = START_MS, *, head: int = 0, tail: int = 10_000, **facts: Any) -> LineFrame:
    return LineFrame.model_validate({
        "event_id": "show", "epoch": 1, "version": at_ms, "ready": True, "at_ms": at_ms, "state": "open",
        "lanes": {0: LaneHead(head_seq=head, tail_seq=tail)}, "rate_per_s": 10.0, "calls_per_s": 10.0, **facts,
    })  # fmt: skip


def line(shown: LineFrame, estimate: WaitEstimate, previous: LineSnapshot | None = None) -> LineSnapshot:
    return LineSnapshot(shown, previous, estimate=estimate, received_s=0.0, poll_ms=(1000, 10_000))


STATES = st.sampled_from(["open", "open", "open", "draining", "paused", "last_chance", "prequeue"])
STEPS = st.lists(
    st.fixed_dictionaries({
        "after_ms": st.integers(1, 8000), "state": STATES, "rate_per_s": st.sampled_from([0.0, 2.0, 10.0, 50.0]),
        "calls_per_s": st.none() | st.floats(0, 60), "live_ratio": st.floats(0.01, 1), "on": st.integers(0, 300),
        "full": st.booleans(), "ready": st.sampled_from([True, True, True, False]),
        "sale_starts_at_ms": st.sampled_from([None, START_MS + 9000, START_MS + 60_000]),
    }),
    min_size=2, max_size=25,
)  # fmt: skip


def estimates_of(steps: list[dict[str, Any]]) -> list[tuple[WaitEstimate, dict[int, int | None]]]:
    """The estimate of each fan after each frame."""
    model, at_ms, head, given, shown = WaitEstimator(), START_MS, 0, [], None
    for step in steps:
        facts = dict(step)
        at_ms += facts.pop("after_ms")
        head += facts.pop("on")
        current = frame(at_ms, head=head, **facts)
        shown = line(current, model.observe(current), shown)
        given.append((shown.estimate, {seq: shown.estimated_wait_s(shown.position(0, seq)) for seq in SEQS}))
    return given


def grows_in_silence(given: list[tuple[WaitEstimate, dict[int, int | None]]]) -> bool:
    for seq in SEQS:
        last: int | None = None
        changed_ms = 0
        for estimate, waits in given:
            wait = waits[seq]
            if wait is not None:
                if last is not None and wait > last and estimate.at_ms == changed_ms:
                    return True
                last, changed_ms = wait, estimate.at_ms
    return False


@pytest.fixture(autouse=True)
def _frames_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.waiting_line.snapshot.now_ms", lambda: START_MS)


@settings(max_examples=30, deadline=None, derandomize=True, database=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(steps=STEPS)
def test_an_estimate_never_grows_without_a_reason(steps: list[dict[str, Any]]) -> None:
    given = estimates_of(steps)
    assert not grows_in_silence(given)
    assert all(estimate.reason for estimate, _ in given if estimate.per_place_s is None)


def test_without_the_promise_it_would_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    def follow_measurement(
        self: WaitEstimator, frame: LineFrame, before: object, per_place_s: float, weight: float
    ) -> None:
        self.current = WaitEstimate(per_place_s)

    monkeypatch.setattr(WaitEstimator, "_adjust", follow_measurement)
    common = {"state": "open", "rate_per_s": 10.0, "live_ratio": 1.0, "on": 0, "after_ms": 1000}
    assert grows_in_silence(estimates_of([{**common, "calls_per_s": pace} for pace in (9.0, 9.5, 8.6, 8.5)]))


@settings(max_examples=20, deadline=None, derandomize=True, database=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(noise=st.lists(st.floats(-0.6, 0.6), min_size=5, max_size=60), on=st.integers(0, 12))
def test_without_a_change_no_reason_is_given(noise: list[float], on: int) -> None:
    steps = [{"after_ms": 1000, "calls_per_s": 10 + x, "on": on} for x in noise]
    given = estimates_of(steps)
    assert {estimate.reason for estimate, _ in given} == {None}
    for seq in SEQS:
        waits = [wait for _, waits in given if (wait := waits[seq]) is not None]
        assert waits == sorted(waits, reverse=True)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"rate_per_s": 5.0}, "rate-lowered"),
        ({"rate_per_s": 5.0, "throttled": Throttled(factor=0.5, reason="inventory-slow")}, "throttled"),
        ({"rate_per_s": 2.0, "throttled": Throttled(factor=0.2, reason="recovering")}, "recovering"),
        ({"state": "paused"}, "paused"),
        ({"rate_per_s": 0.0}, "paused"),
        ({"state": "last_chance"}, "stock-low"),
        ({"ready": False}, "unknown"),
    ],
)
def test_a_sudden_change_is_named_at_once(facts: dict[str, Any], reason: str) -> None:
    model = WaitEstimator()
    before = model.observe(frame())
    after = model.observe(frame(START_MS + 200, **facts))
    assert (after.reason, after.at_ms) == (reason, START_MS + 200)
    assert after.per_place_s is None or after.per_place_s > (before.per_place_s or 0)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"calls_per_s": 1.0, "full": True}, "room-full"),
        ({"calls_per_s": 1.0}, "slower"),
        ({"live_ratio": 1.0}, "fans-returned"),
    ],
)
def test_a_lasting_change_is_named_once_it_has_lasted(facts: dict[str, Any], reason: str) -> None:
    model = WaitEstimator()
    model.observe(frame(live_ratio=0.4))
    given = [model.observe(frame(START_MS + s * 1000, **{"live_ratio": 0.4, **facts})).reason for s in range(1, 31)]
    assert given[2] is None, "a moment is no change"
    assert given[-1] == reason


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"stock_bound": True}, "stock-low"),
        ({"called_at_ms": START_MS - 1, "calls_per_s": 0.5}, "slower"),
        ({"called_at_ms": START_MS - 1, "calls_per_s": 0.5, "full": True}, "room-full"),
    ],
)
def test_without_calls_nobody_gets_an_estimate_of_a_second(facts: dict[str, Any], reason: str) -> None:
    model = WaitEstimator()
    for s in range(60):
        model.observe(frame(START_MS + s * 1000, **(facts if s > 1 else {})))
    estimate = model.current
    assert (estimate.per_place_s, estimate.reason) == (None, reason)
    shown = line(frame(), estimate)
    assert shown.estimated_range(1) == {"estimated_wait_low": None, "estimated_wait_high": None}
    calm = [model.observe(frame(START_MS + s * 1000, called_at_ms=START_MS + s * 1000)) for s in range(60, 75)]
    assert calm[-1].per_place_s is not None, "calls go on"


def test_a_lull_is_no_standstill() -> None:
    model, at_ms = WaitEstimator(), START_MS
    model.observe(frame(at_ms, called_at_ms=at_ms))
    model.observe(frame(at_ms + 600_000, head=10_000, called_at_ms=at_ms))
    assert model.observe(frame(at_ms + 601_000, head=10_000, tail=10_400, called_at_ms=at_ms)).per_place_s is not None


def test_a_wait_of_days_is_given_as_more_than_one() -> None:
    shown = line(frame(), WaitEstimate(120.0))
    assert shown.estimated_wait_s(1650) is None
    assert shown.estimated_range(1650) == {"estimated_wait_low": 86_400, "estimated_wait_high": None}


def test_the_range_is_around_the_estimate_and_as_wide_as_it_is_unsure() -> None:
    sure, unsure = (line(frame(), WaitEstimate(0.1, band=band)).estimated_range(1000) for band in (0.2, 0.7))
    assert (sure["estimated_wait_low"], sure["estimated_wait_high"]) == (79, 129)
    assert (unsure["estimated_wait_low"], unsure["estimated_wait_high"]) == (48, 210)
    assert line(frame(), WaitEstimate(0.1)).estimated_range(1) == {"estimated_wait_low": 0, "estimated_wait_high": 3}


def test_what_follows_a_lowered_rate_is_not_laid_on_others() -> None:
    """The rate falls to a third; the room stays full, and what is measured comes after."""
    model = WaitEstimator()
    model.observe(frame(calls_per_s=9.5, full=True))
    given = [
        model.observe(frame(START_MS + s * 1000, rate_per_s=3.0, calls_per_s=2.0, full=True)) for s in range(1, 46)
    ]
    assert {estimate.reason for estimate in given} == {"rate-lowered"}
    assert len({estimate.at_ms for estimate in given}) > 1, "and later growth has the same reason"
    for s in range(46, 240):
        model.observe(frame(START_MS + s * 1000, rate_per_s=3.0, calls_per_s=0.5, full=True))
    assert model.current.reason == "room-full"


def test_it_moves_slowly_both_ways() -> None:
    model = WaitEstimator()
    steady = model.observe(frame()).per_place_s or 0
    for rate in (100.0, 10.0):
        moved = [model.observe(frame(START_MS + s * 1000, rate_per_s=rate, calls_per_s=rate)) for s in range(1, 4)]
        assert all(steady / 1.5 < (estimate.per_place_s or 0) < steady * 1.5 for estimate in moved)


@pytest.mark.parametrize("shares", [(0.05, 1.0), (1.0, 0.05)], ids=["all came back", "nearly all are gone"])
def test_however_far_it_must_go_it_takes_no_more_than_a_step_in_ten_seconds(shares: tuple[float, float]) -> None:
    """Nobody changed the rate, but twenty times as many of those ahead are there as before, or as few."""
    model, per_place_s = WaitEstimator(), list[float]()
    for s in range(200):
        estimate = model.observe(frame(START_MS + s * 1000, live_ratio=shares[s >= 20]))
        per_place_s.append(estimate.per_place_s or 0)
    swings = [max(a, b) / min(a, b) for a, b in zip(per_place_s, per_place_s[10:], strict=False)]
    assert max(swings) < 1.54, "the largest swing within ten seconds of an hour"
    assert shares[1] * 0.08 < per_place_s[-1] < shares[1] * 0.12, "and it arrives"


def test_before_the_sale_the_wait_counts_from_its_start() -> None:
    model = WaitEstimator()
    starts: dict[str, Any] = {"state": "prequeue", "calls_per_s": None, "sale_starts_at_ms": START_MS + 60_000}
    early = line(frame(**starts), model.observe(frame(**starts)))
    assert early.estimated_wait_s(100) == 60 + 10
    on_sale = frame(START_MS + 60_000, sale_starts_at_ms=START_MS + 60_000)
    assert line(on_sale, model.observe(on_sale), early).estimated_wait_s(100) == 10
    later = frame(START_MS + 60_100, state="prequeue", sale_starts_at_ms=START_MS + 90_000)
    assert model.observe(later).reason == "start-moved"


def _observed(estimate: str) -> tuple[float, float]:
    labels = {"estimate": estimate}
    return tuple(
        REGISTRY.get_sample_value(f"gateway_estimate_error_seconds_{what}", labels) or 0 for what in ("count", "sum")
    )  # type: ignore[return-value]


def test_estimates_are_compared_with_the_call() -> None:
    (count, total), sample = _observed("kept"), EstimateAccuracy()
    sample.evaluate(1, {0: 0}, now_s=0.0)
    for seq in range(1, 65):
        sample.record(0, seq, 30, low_s=25, high_s=32, now_s=100.0)
        sample.record(0, seq, 5, low_s=4, high_s=6, now_s=125.0)
    sample.evaluate(1, {0: 40}, now_s=133.0)
    assert _observed("kept") == (count + 2, total + 6), "16 and 32 were told 30 s and waited 33"
    later = REGISTRY.get_sample_value("gateway_estimate_range_total", {"estimate": "kept", "call": "later"})
    assert (later or 0) >= 2, "32 s was the most"
    for seq in range(1000, 100_000):
        sample.record(0, seq, 30, low_s=25, high_s=32, now_s=100.0)
    assert len(sample._samples) == 512
    sample.evaluate(2, {0: 0}, now_s=134.0)
    assert not sample._samples


async def test_a_waiting_fan_gets_the_reason_and_the_public_line_says_throttled(fan, queue, show) -> None:
    room = queue.open(head_seq=100, rate_per_s=10.0)
    await show(room.frame())
    early = token()
    assert "throttled" not in (await fan.get(PATH)).json()
    throttled = {"factor": 0.5, "reason": "orders-slow"}
    await show(room.change(rate_per_s=5.0, throttled=throttled))
    answer = (await fan.get(STATUS, headers=bearing(early))).json()
    assert (answer["estimated_wait_time"], answer["estimate_changed"]["reason"]) == (80, "throttled")
    assert (await fan.get(PATH)).json()["throttled"] == throttled
    await show(room.change(state="paused"))
    answer = (await fan.get(STATUS, headers=bearing(early))).json()
    assert (answer["estimated_wait_time"], answer["estimate_changed"]["reason"]) == (None, "paused")


@pytest.mark.parametrize(("room_state", "slug"), [("closed", "room-closed"), ("sold_out", "sold-out")])
async def test_a_claim_when_all_is_over_says_so(fan, queue, show, room_state: str, slug: str) -> None:
    await show(queue.open(head_seq=100, state=room_state).frame())
    for join_seq in (50, 500):
        queue.rooms["show"].ended[50] = "waiting"
        answer = await fan.post(f"{PATH}/pass", headers=bearing(token(join_seq=join_seq)))
        assert (answer.status_code, answer.json()["type"]) == (410, f"/problems/{slug}")


def test_a_fan_who_joined_after_a_change_does_not_get_it() -> None:
    shown = line(frame(), WaitEstimate(0.1, 0, "rate-lowered", START_MS))
    assert shown.estimate_changed(START_MS // 1000 - 1) is not None
    assert shown.estimate_changed(START_MS // 1000 + 1) is None


def test_another_lanes_fans_are_a_reason_and_are_not_forgotten_at_once() -> None:
    def snapshot(at_ms: int, *, presale: int, before: LineSnapshot | None = None) -> LineSnapshot:
        lanes = [{"lane": 0, "name": "General"}, {"lane": 1, "name": "Presale", "weight": 3, "code_required": True}]
        heads = {0: {"head_seq": 0, "tail_seq": 100}, 1: {"head_seq": 0, "tail_seq": presale}}
        shown = LineFrame.model_validate({
            "event_id": "show", "epoch": 1, "version": at_ms, "ready": True, "at_ms": at_ms, "state": "open",
            "rate_per_s": 10, "lanes": heads, "options": {"lanes": lanes},
        })  # fmt: skip
        return LineSnapshot(
            shown, before, estimate=WaitEstimate(per_place_s=0.1), received_s=0.0, poll_ms=(1000, 10_000)
        )

    alone = snapshot(1_000_000, presale=0)
    assert (alone.estimated_wait_s(40), alone.estimate_changed(0)) == (4, None)
    with_presale = snapshot(1_001_000, presale=5, before=alone)
    assert with_presale.estimated_wait_s(40) == 16
    assert (with_presale.estimate_changed(0) or {})["reason"] == "other-lanes"
    assert with_presale.estimate_changed(2_000) is None  # a fan who joined later was told so from the start
    just_now = snapshot(1_020_000, presale=0, before=with_presale)
    assert just_now.estimated_wait_s(40) == 16
    assert snapshot(1_040_000, presale=0, before=just_now).estimated_wait_s(40) == 4
