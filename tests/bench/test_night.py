"""The night: what it reports if a promise is broken. A small one runs whole in `proof/bench/test_load.py`.

The journey: its figures from what the commands wrote, and what a sample of the suite is counted for.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from types import FrameType
from typing import Any, get_args

import orjson
import pytest
import yaml

from bench.harness.load import Answer
from bench.harness.measurement import BARE_PER_CPU_S, CheckFailed
from bench.journey import arrivals, replay, suites
from bench.journey.commands import Journey, part_of
from bench.journey.journey import ARRIVE_OVER_S, CALLS, FANS, figures, refusals, require_guarantees
from bench.journey.sampler.sitecustomize import label_of, template
from bench.night.__main__ import parse_options
from bench.night.crowd import Crowd, Plan, PublicLine, Reader
from bench.night.fan import Call, Fan, Listen, Pause, Pool, ReadLine, Sale
from bench.night.result import Night, aims_of, call_rows, own_delay_of, page_with
from bench.night.streams import EACH_MAX, Holder, StreamProcesses, processes_for
from bench.night.suite import Record, Rules
from bench.record.digest import ROOT
from tests.support.wait import wait_until

SALE = Sale("night", "GA")
PORTS = dict.fromkeys(get_args(Pool), 1)
PLAN = Plan(SALE, fans=2, arrive_over_s=1.0, streams=0, ports=PORTS, notifier_ports=(), seconds_max=1.0)
RULES = Rules(rate_per_s=10, max_active=10, begin_s=1)
JOINED = b'{"queue_token":"t","join_seq":1,"poll_after_ms":2000}'


def a_night() -> Night:
    """Two fans and one ticket: one bought it, the other heard so."""
    record = Record()
    for number in (1, 2):
        record.joined(number)
    record.observations.capacity = 1
    record.held()
    record.confirmed(1.0)
    record.informed()
    return Night(PLAN, 1, record, rules=RULES, spent_s={}, wrong_books=[])


def overtaken(ended: Night) -> None:
    ended.record.called(2)
    ended.record.check_not_overtaken(1, float("inf"))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda n: n.record.confirmed(1.0), "1 oversold"),
        (lambda n: n.record.joined(2), "1 duplicate numbers"),
        (lambda n: n.record.per_second["informed"].clear(), "1 fans never heard"),
        (lambda n: n.record.failed.update(["hold 500"]), "1 times hold 500"),
        (lambda n: n.wrong_books.append("invariant broken: no ticket twice"), "invariant broken: no ticket twice"),
        (overtaken, "1 inversions"),
    ],
    ids=["oversold", "duplicate", "not told", "failed call", "books", "overtaken"],
)
def test_a_broken_promise_is_said(broken, said) -> None:
    ended = a_night()
    assert ended.failures == []
    assert "1 of 2 tickets sold" in replace(ended, tickets=2).failures
    broken(ended)
    assert said in ended.failures


def test_a_fan_repeats_a_refused_request_as_the_answer_says() -> None:
    record = Record()
    life = Fan(SALE, record, watches=False).life()
    join = next(life)
    assert isinstance(join, Call)
    pause = life.send(Answer(503, b"{}", b"HTTP/1.1 503 x\r\nretry-after: 4\r\n\r\n"))
    assert isinstance(pause, Pause)
    assert 4 <= pause.seconds <= 8
    again = life.send(None)
    assert again == join, "the same request with the same key"
    assert life.send(Answer(201, JOINED)) == Pause(2.0), "the first poll comes when the server says"


def test_a_fan_who_comes_too_late_has_heard_it() -> None:
    record = Record()
    life = Fan(SALE, record, watches=False).life()
    next(life)
    with pytest.raises(StopIteration):
        life.send(Answer(410, b"{}"))
    assert record.total("informed") == 1


def test_a_fan_whose_stream_says_that_it_is_sold_out_asks_nothing_more() -> None:
    record = Record()
    life = Fan(SALE, record, watches=True).life()
    next(life)
    assert isinstance(life.send(Answer(201, JOINED)), Listen)
    with pytest.raises(StopIteration):
        life.send("sold out")
    assert record.total("informed") == 1


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b'event: line\ndata: {"state":"open","head_seq":7}\n\nevent: sections\nid: 1\ndata: {}\n\n', (7, False)),
        (b'event: line\nid: 9\ndata: {"state":"sold_out","head_seq":8}\n\n', (8, True)),
        (b"event: beat\ndata: {}\n\n", None),
    ],
)
async def test_a_stream_tells_the_head_and_whether_it_is_sold_out(data, line) -> None:
    ours, theirs = Pipe()
    with ours, theirs:
        assert Holder(ours, 1).line_of(data) == line


@pytest.mark.parametrize(
    "wrong", [["--fans", "0"], ["--begin", "-1"], ["--fans", "5", "--streams", "6"], ["--rate", "0"]]
)
def test_bad_options_are_refused(wrong, capsys) -> None:
    with pytest.raises(SystemExit):
        parse_options(wrong)
    assert "error" in capsys.readouterr().err


def test_each_figure_is_held_to_its_aim() -> None:
    ended = a_night()
    for name, took_s in (("join", 0.4), ("order", 0.6), ("status", 1.9), ("order status", 9.0)):
        ended.record.answered(name, 200, took_s, unsent_s=took_s / 2)
    ended.record.took_s, ended.record.streams_most = 239.0, 49_999
    met = {what: verdict for what, *_, verdict in aims_of(ended.figures())}
    assert {what for what, verdict in met.items() if verdict == "missed"} == {"order, p99", "streams at once"}
    assert "order status, p99" not in met, "shown with all calls, but no aim"
    ended.record.answered("pass", 503, 0.1, unsent_s=0.0)
    assert {what: verdict for what, *_, verdict in aims_of(ended.figures())}["checkout calls without 5xx"] == "missed"


def test_all_calls_are_shown_and_what_the_crowd_itself_added() -> None:
    ended = a_night()
    ended.record.answered("quote", 200, 0.2, unsent_s=0.15)
    ended.record.answered("status", 503, 0.01, unsent_s=0.0)
    ended.record.late_ms.extend([1.0, 30.0])
    ended.record.connections["line"] = 7
    figures = ended.figures()
    assert call_rows(figures) == [
        ("quote", "1", "200", "200", "200", "150", "1 × 200"), ("status", "1", "10", "10", "10", "0", "1 × 503"),
    ]  # fmt: skip
    assert "30 ms at most" in own_delay_of(figures)
    assert "line 7 of 2,048" in own_delay_of(figures)


async def test_a_call_counts_from_when_its_fan_wanted_it_not_from_when_the_crowd_came_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd, wanted = Crowd(PLAN), list[float]()
    monkeypatch.setattr(crowd._pools["join"], "send", lambda call, life, wanted_s: wanted.append(wanted_s))
    crowd._timers[:] = [(1.0, 1, Fan(SALE, crowd.record, watches=False).life(), None)]  # due long ago
    waking = asyncio.create_task(crowd._wake())
    await wait_until(lambda: bool(wanted))
    waking.cancel()
    assert wanted == [1.0]
    assert crowd.record.late_ms[0] > 0


LINE = {"head_seq": 100, "state": "open", "near_places": 50, "heartbeat_after_ms": 360_000, "poll_after_ms": 4_000}


def test_a_fan_far_back_reads_the_public_line_until_it_is_near_or_sold_out_and_asks_in_between_as_a_heartbeat() -> None:
    record = Record()
    life = Fan(SALE, record, watches=False).life()
    next(life)
    far = life.send(Answer(201, JOINED[:-1] + b',"heartbeat_after_ms":100000}'))
    assert isinstance(far, ReadLine)
    assert 80 <= far.seconds <= 100
    later = list[tuple[Reader, object, float]]()
    line = PublicLine(SALE, lambda *what: later.append(what))
    nearer, farther = line.add(ReadLine(151, 90.0), life), line.add(ReadLine(400, 90.0), life)
    assert later == [(nearer, None, 90.0), (farther, None, 90.0)], "heartbeats"
    line.read(LINE)
    assert len(later) == 2, "51 places are ahead"
    line.read({**LINE, "head_seq": 101})
    assert later[2][:2] == (nearer, None)
    assert 0 <= later[2][2] <= 4
    line.read({**LINE, "state": "sold_out"})
    assert later[3][:2] == (farther, "sold out")
    with pytest.raises(StopIteration):
        life.send("sold out")
    assert record.total("informed") == 1


def test_no_fan_reads_the_line_any_more_once_it_is_short() -> None:
    later = list[tuple[Reader, object, float]]()
    line = PublicLine(SALE, lambda *what: later.append(what))
    line.add(ReadLine(10_000, 90.0), Fan(SALE, Record(), watches=False).life())
    line.read({**LINE, "heartbeat_after_ms": None})
    assert [came for _, came, _ in later] == [None, None]


def test_streams_spread_over_as_many_processes_as_they_need() -> None:
    assert [processes_for(streams) for streams in (0, EACH_MAX, EACH_MAX + 1, 50_000)] == [1, 1, 2, 3]


async def test_a_fan_hears_on_a_stream_of_another_process_that_it_is_called() -> None:
    frame = b'event: line\ndata: {"state":"open","head_seq":7}\n\n'
    told, writers = list[tuple[int, str]](), list[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(frame)
        writers.append(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        streams = StreamProcesses([server.sockets[0].getsockname()[1]], lambda *end: told.append(end))
        streams.start()
        for number, join_seq in ((1, 7), (2, 8)):
            streams.open(number, Listen(join_seq, b"GET / HTTP/1.1\r\n\r\n"))
        await wait_until(lambda: bool(told) and streams.most == 2, timeout_s=30)
        streams.stop()
        for writer in writers:
            writer.close()
            await writer.wait_closed()
    assert told == [(1, "called")]
    assert (streams.held[0].frames, streams.held[0].lost) == (2, 0)


def test_the_page_of_benchmarks_shows_the_saved_night() -> None:
    root = Path(__file__).parents[2]
    saved = orjson.loads((root / "bench" / "results" / "night.json").read_bytes())
    page = (root / "docs" / "explain" / "benchmarks.md").read_text()
    assert page == page_with(page, saved)
    assert saved["failures"] == [], "a night that broke a promise is not shown"


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
