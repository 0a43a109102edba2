"""The night: what it reports if a promise is broken. A small one runs whole in `proof/bench/test_small_night.py`."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import orjson
import pytest

from bench.harness.load import Answer
from bench.night.__main__ import parse_options
from bench.night.crowd import Crowd, Plan
from bench.night.fan import Call, Fan, Listen, Pause, Pool, Sale
from bench.night.record import Record
from bench.night.result import THE_NIGHT, Night, table

pytestmark = pytest.mark.proof  # a change of the product breaks none of it

SALE = Sale("night", "GA")
PLAN = Plan(SALE, fans=2, streams=0, ports=dict.fromkeys(get_args(Pool), 1), notifier_port=1, seconds_max=1.0)
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
    return Night(PLAN, 1, record, spent_s={}, wrong_books=[])


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
    assert Crowd(PLAN).line_of(data) == line


@pytest.mark.parametrize(
    "wrong", [["--fans", "0"], ["--begin", "-1"], ["--fans", "5", "--streams", "6"], ["--rate", "0"]]
)
def test_bad_options_are_refused(wrong, capsys) -> None:
    with pytest.raises(SystemExit):
        parse_options(wrong)
    assert "error" in capsys.readouterr().err


def test_the_page_of_benchmarks_shows_the_saved_night() -> None:
    root = Path(__file__).parents[2]
    saved = orjson.loads((root / "bench" / "results" / "night.json").read_bytes())
    page = (root / "docs" / "explain" / "benchmarks.md").read_text()
    assert page == THE_NIGHT.replaced(page, table(saved))
    assert saved["failures"] == [], "a night that broke a promise is not shown"
