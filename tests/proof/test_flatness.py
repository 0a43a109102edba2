"""The check of flatness goes red for a leak and for a step, and stays green for noise and for outliers."""

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from proof.load.fans import Recorder, Span
from proof.load.run import (
    POINTS_MAX,
    Bound,
    Phases,
    after,
    growth,
    growth_findings,
    not_flat,
    overload_findings,
    slope,
)

pytestmark = pytest.mark.proof  # a change of the product breaks none of it

BOUND = Bound(0.05, 4)
QUIET = Span(10, 1000, 0, Counter(), 50, 20.0, 100.0, 0, 0)


def series(samples: int, value: Any) -> list[tuple[float, float]]:
    """A sample every three seconds."""
    return [(3.0 * number, value(number / samples)) for number in range(samples)]


@pytest.mark.parametrize("samples", [20, 600])
@pytest.mark.parametrize(("name", "value", "is_flat"), [
    ("flat", lambda share: 100.0, True),
    ("falling", lambda share: 100.0 - 30 * share, True),
    ("a leak", lambda share: 100.0 + 10 * share, False),
    ("a leak in noise", lambda share: 100.0 + 20 * share + random.Random(share).uniform(-8, 8), False),
    ("a step", lambda share: 100.0 + 10 * (share > 0.5), False),
    ("noise", lambda share: 100.0 + random.Random(share).uniform(-8, 8), True),
    ("outliers", lambda share: 100.0 + 500 * (share in {0.45, 0.7}), True),
])  # fmt: skip
def test_only_a_leak_and_a_step_are_found(samples: int, name: str, value: Any, is_flat: bool) -> None:
    found = not_flat(name, series(samples, value), BOUND, " MB")
    assert bool(found) != is_flat, found


def test_growth_is_that_of_the_slope_over_the_period() -> None:
    rising = series(600, lambda share: 50 + 18 * share)
    assert slope(rising) == pytest.approx(18 / 1800, rel=0.01)
    assert growth(rising) == pytest.approx(18, rel=0.02)
    assert not_flat("rss", rising, BOUND, " MB") == ["rss grew by 18.0 MB in 1797 s, at most 4.0 MB are allowed"]


def test_a_long_series_is_compared_by_windows_and_the_warm_up_does_not_count() -> None:
    warm = series(20 * POINTS_MAX, lambda share: 100 if share > 0.2 else 100 * share)
    assert not not_flat("warm", after(warm, 0.25 * 3 * len(warm)), BOUND)
    assert not_flat("cold", warm, BOUND) == [] or growth(warm) > BOUND.most(warm)
    assert not_flat("few", [(0, 1.0), (1, 1000.0)], BOUND) == []


def test_what_grows_with_sales_is_bounded_by_the_purchase() -> None:
    leak = series(40, lambda share: 100 + 60 * share)
    samples: Any = SimpleNamespace(flat={"queue: memory MB": leak}, grown={"redis keys": [0.0, 500.0]})
    samples.grown |= {name: [0.0, 10.0] for name in ("table KB", "redis KB", "rows")}
    found = growth_findings(samples, 0, bought=10)
    assert [sentence.partition(" grew")[0] for sentence in found] == ["queue: memory MB", "redis keys"]
    assert len(growth_findings(samples, 0, bought=1000)) == 1


@pytest.mark.parametrize(("during", "later", "says"), [
    ({}, {}, None),
    ({"refused": 500, "p95_ms": 4000.0, "slowest_ms": 19_000.0}, {}, None),
    ({"bad": Counter({"hold 500": 1})}, {}, "neither a success nor a clear refusal: {'hold 500': 1}"),
    ({}, {"refused": 1}, "5 s after the overload 1 answers were refusals"),
    ({}, {"p95_ms": 200.0}, "5 s after the overload p95 was 200 ms, before it 20 ms"),
    ({}, {"unsold_s": 11}, "later than 5 s after the overload nobody bought for 11 s"),
    ({}, {"answers": 0}, "no answer came later than 5 s"),
])  # fmt: skip
def test_an_overload_must_be_refused_clearly_and_leave_nothing(
    during: dict[str, Any], later: dict[str, Any], says: str | None
) -> None:
    spans = [Span(**{**vars(QUIET), **changes}) for changes in (during, later)]
    found = overload_findings(QUIET, *spans)
    assert [says] == [says for sentence in found if says and says in sentence] if says else found == []


def test_an_answer_is_good_refused_clearly_or_bad(capsys: pytest.CaptureFixture[str]) -> None:
    recorder, problem = Recorder(), b'{"type": "/problems/busy"}'
    later = {"retry-after": "1"}
    answers: list[tuple[int, dict[str, str], bytes]] = [(200, {}, b""), (409, {}, b"")]
    answers += [(503, later, problem), (429, later, problem)]
    answers += [(503, {}, problem), (503, later, b"<html>"), (429, {}, b""), (500, {}, problem)]
    for status, headers, content in answers:
        answer: Any = SimpleNamespace(status_code=status, headers=headers, content=content)
        recorder.record("hold", answer, 0.1)
    recorder.record("hold", None, 20)
    recorder.end_second()
    line = capsys.readouterr().out
    assert '"answers": 9, "refused": 2, "bad": {"hold 503": 2, "hold 429": 1, "hold 500": 1, "hold 0": 1}' in line


def test_a_silence_is_the_longest_run_of_seconds_without_a_good_answer() -> None:
    second = {"refused": 0, "bad": {}, "bought": 0, "p95_ms": 1, "slowest_ms": 2}
    answers = [5, 0, 0, 5, 0, 5]
    assert Span.of([second | {"answers": n} for n in answers]).silence_s == 2
    assert Span.of([second | {"answers": 3, "refused": 3}] * 4).silence_s == 4
    assert Span.of([second | {"answers": 3, "bought": n} for n in (1, 0, 0, 0, 2, 0)]).unsold_s == 3


def test_phases_fit_a_budget_and_are_never_longer_than_the_proof_needs() -> None:
    assert Phases.within(20) == Phases(4.0, 2.0, 12.0, 3.0, 5.0)
    assert Phases.within(10 * 3600) == Phases(60, 15, 1800, 60, 30)
