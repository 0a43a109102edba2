"""The journey: its figures from what the commands wrote, and what a sample of the suite is counted for."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import yaml

from bench.harness.measurement import BARE_PER_CPU_S, CheckFailed
from bench.journey import arrivals, replay, suites
from bench.journey.commands import Journey, part_of
from bench.journey.journey import ARRIVE_OVER_S, CALLS, FANS, figures, refusals, require_guarantees
from bench.journey.sampler.sitecustomize import label_of, template
from bench.record.digest import ROOT


def a_run(*, seconds: float = 10.0, answers: dict[str, int] | None = None, suite_s: float = 10.0) -> Journey:
    calls = {
        "join": {"n": 2_000, "p50": 10.0, "p95": 100.0, "p99": 200.0, "answers": {"201": 2_000}},
        "create_order": {"n": 2_500, "p50": 20.0, "p95": 500.0, "p99": 900.0, "answers": answers or {"202": 2_500}},
    }
    crowd = {
        "fans": 2_000, "bought": 1_900, "seconds": seconds, "calls_ms": calls,
        "oversold": 0, "inversions": 0, "duplicate_numbers": 0,
    }  # fmt: skip
    return Journey(crowd, {"suite": suite_s, "PostgreSQL": 2.0, "crowd": 4.0})


def test_the_figures_are_medians_of_the_runs_and_a_suites_samples_share_its_processor_time() -> None:
    busy = {"202": 2_000, "503": 500}
    runs = [a_run(seconds=30.0, answers=busy, suite_s=30.0), a_run(), a_run(seconds=5.0, answers=busy)]
    samples = {CALLS["join"]: 25, "loop queue relay": 75}
    found = figures(runs, samples, 2_000, BARE_PER_CPU_S)
    rows = {row[1]: row for row in found.rows}
    assert rows["join"][2:] == ("1.00", "10", "100", "200", "–", "1,250")
    assert rows["create_order"][2:] == ("1.25", "20", "500", "900", "13.3%: 1000 × 503", "0")
    assert [rows[name][-1] for name in ("suite", "crowd", "PostgreSQL")] == ["5,000", "2,000", "1,000"]
    assert (rows["loop queue relay"][-1], rows["all other"][-1]) == ("3,750", "0")
    per_s, cost, slowest, refused = found.claims
    assert (per_s.ours, per_s.ratio) == ("190/s", "met")
    assert (cost.ours, cost.beside) == ("8.0 ms", "suite 5.0, crowd 2.0, PostgreSQL 1.0")
    assert cost.ratio == "met: 8.0 ms where bare uvicorn takes 40 µs, here 40"
    assert (slowest.ours, slowest.beside, slowest.ratio) == ("500 ms", "create_order", "met")
    assert (refused.ours, refused.beside, refused.ratio) == ("500", "of 4,500", "missed")
    _, slower_machine, *_ = figures(runs, samples, 2_000, 2 * BARE_PER_CPU_S).claims
    assert slower_machine.ratio.startswith("missed: 16.0 ms")


def test_a_run_that_breaks_a_guarantee_has_no_figures() -> None:
    require_guarantees(a_run())
    for broken in ({"oversold": 1}, {"bought": 0}):
        run = a_run()
        with pytest.raises(CheckFailed):
            require_guarantees(Journey({**run.crowd, **broken}, run.spent_s))
    with pytest.raises(CheckFailed, match="create_order"):
        require_guarantees(a_run(answers={"202": 2_499, "400": 1}))


def test_many_processes_are_compared_with_one_that_has_as_many_fans_as_each_of_them() -> None:
    sizes = {(1, 500): (10.0, 4.0), (1, 2_000): (10.0, 8.0), (2, 2_000): (8.0, 12.0), (4, 2_000): (16.0, 20.0)}
    runs = {size: [a_run(seconds=seconds, suite_s=suite_s)] for size, (seconds, suite_s) in sizes.items()}
    found = suites.figures(runs, 2_000)
    assert found.rows[2] == ("2", "2,000", "238", "9.0", "6.0", "1.0", "500")
    faster, dearer = found.claims
    assert (faster.ours, faster.beside, faster.ratio) == ("238/s", "190/s", "1.25 ×, met")
    assert (dearer.ours, dearer.beside, dearer.ratio) == ("13.0 ms", "20.0 ms", "0.65 ×, met")


def test_refusals_are_answers_that_ask_to_come_again_and_none() -> None:
    answers = {"0": 1, "200": 2, "404": 3, "409": 4, "429": 5, "500": 6, "503": 7}
    assert refusals(answers) == {"0": 1, "429": 5, "500": 6, "503": 7}


def test_the_page_says_how_fast_the_event_lets_fans_in() -> None:
    room = yaml.safe_load((ROOT / "onsale/examples/flash.yaml").read_text())["room"]
    page = " ".join((ROOT / "docs/explain/benchmarks.md").read_text().split())
    assert f"at most {room['rate_per_s']} fans a second, faster than they come" in page
    assert room["rate_per_s"] > FANS / ARRIVE_OVER_S


def test_every_call_is_an_operation_of_the_api_and_its_path_is_recognized() -> None:
    document: dict[str, Any] = json.loads((ROOT / "features/pages/openapi/fans.json").read_text())
    known = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert set(CALLS.values()) <= known
    for operation in CALLS.values():
        method, path = operation.split()
        asked = path.format(event_id="flash-2026", section_id="GA", reservation_id="r-1", reference="AB12CD34")
        assert f"{method} {template(asked)}" == operation
    assert template("/internal/events/flash-2026/rooms") == "/internal/events/{id}/rooms"


@pytest.mark.parametrize(
    ("command_line", "part"),
    [
        ("python -P -m onsale up --demo", "suite"), ("python -I -S supervisor.py -- -m onsale.sandbox", "sandbox"),
        ("postgres: onsale onsale 127.0.0.1(1) idle", "PostgreSQL"), ("valkey-server 127.0.0.1:1", "Valkey"),
    ],
)  # fmt: skip
def test_a_process_belongs_to_a_part(command_line: str, part: str) -> None:
    assert part_of(command_line) == part


def stack(*functions: tuple[str, str]) -> FrameType:
    """The frame of the last of these functions, each of which calls the next; a function is its file and its head."""
    inner: Callable[..., Any] = sys._getframe
    for file, head in reversed(functions):
        space: dict[str, Any] = {"inner": inner}
        exec(compile(f"def {head}:\n    return inner()", file, "exec"), space)
        inner = space[head.partition("(")[0]]
    return inner()


SCOPE = {"type": "http", "method": "GET", "path": "/events/flash-2026/sections"}


def test_a_sample_is_counted_for_its_request_else_for_the_first_frame_of_a_service() -> None:
    request = ("/x/shared/web/app.py", f"handle(scope={SCOPE})")
    loop, service = ("/x/shared/concurrency/loops.py", "every()"), ("/x/services/queue/admission/tick.py", "tick()")
    store = ("/x/services/queue/store/store.py", "read()")
    assert label_of(stack(request, service)) == "GET /events/{event_id}/sections"
    assert label_of(stack(loop, service, store)) == "queue/admission/tick tick"
    assert label_of(stack(loop)) == "concurrency/loops every"
    runner = ("/lib/asyncio/runners.py", "run()")
    assert label_of(stack(service, runner)) == "event loop", "whatever called the runner is no work"
    assert label_of(stack(service, runner, store)) == "queue/store/store read"
    begun = ("/x/onsale/server/request_limits.py", "on_message_begin(scope={'type': 'http', 'method': ''})")
    assert label_of(stack(begun)) == "server/request_limits on_message_begin", "its path is not known yet"


# -- the replayed sale -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 10])
def test_the_arrivals_have_the_totals_that_were_published(times: int) -> None:
    seconds, came = arrivals.by_second(times), arrivals.moments(times)
    assert (sum(seconds), len(seconds), max(seconds)) == (967 * times, 17, 134 * times)
    assert max(sum(seconds[n : n + 6]) for n in range(12)) == 718 * times
    assert Counter(map(int, came)) == dict(enumerate(seconds))
    assert came == sorted(came) == arrivals.moments(times), "always alike"
    assert arrivals.tickets(times) == sum(seconds[:13])


def test_a_replay_counts_errors_and_its_slowest_call() -> None:
    crowd: dict[str, Any] = {
        "fans": 967, "seconds": 20.0, "tickets_sold": 876, "capacity": 876,
        "calls_ms": {
            "join": {"n": 967, "p50": 5.0, "p95": 9.0, "p99": 20.0, "answers": {"201": 967}},
            "hold": {"n": 967, "p50": 5.0, "p95": 9.0, "p99": 400.0, "answers": {"201": 876, "409": 91}},
        },
    }  # fmt: skip
    kept = replay.claim(crowd, 1)
    assert (kept.ours, kept.ratio) == ("0 × 5xx; slowest call, hold, p99 400 ms", "met")
    crowd["calls_ms"]["hold"]["answers"] = {"201": 876, "0": 1, "503": 2}
    failed = replay.claim(crowd, 10)
    assert (failed.ours.partition(";")[0], failed.ratio) == ("3 × 5xx", "missed")
    assert replay.call_rows(crowd, 10)[0] == ("10 ×", "hold", "967", "5", "9", "400", "1 × 0, 876 × 201, 2 × 503")
