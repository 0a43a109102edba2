"""Alertmanager's alarms stand beside the console's own, each once; without it everything else goes on."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from features.console.gathering import alertmanager as module
from features.console.gathering.alarms import MISSED_S, SAMPLE_S, active_alarm, merged, past_alarms
from features.console.gathering.history import Sample, Samples
from features.console.metrics import MALFORMED
from features.console.tests.admin import EVENT, LINE, Admin
from features.console.tests.conftest import Console, Start, next_of
from features.console.tests.test_vitals import record
from shared.alarms import BY_NAME
from shared.contracts.admin.queue import LineFlow
from shared.runtime.clock import now_ms
from tests.support.running.serving import serving
from tests.support.wait import wait_until

LONG_AGO = "2026-01-02T03:04:05.678Z"
SILENT = "AlertmanagerSilent"


def alert(name: str, summary: str | None = None, **labels: str) -> dict[str, Any]:
    """An alert in the form of Alertmanager's API."""
    return {
        "labels": {"alertname": name, "severity": "x", **labels},
        "annotations": {"summary": summary or f"{name} by Prometheus"},
        "startsAt": LONG_AGO, "endsAt": LONG_AGO, "updatedAt": LONG_AGO, "fingerprint": "f", "generatorURL": "",
        "receivers": [{"name": "chat"}], "status": {"inhibitedBy": [], "silencedBy": [], "state": "active"},
    }  # fmt: skip


class FakeAlertmanager:
    """Answers `body` with `status` after `late_s`; `asked` counts."""

    def __init__(self) -> None:
        self.body: bytes = b"[]"
        self.status, self.late_s, self.asked = 200, 0.0, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        assert (scope["path"], b"active=true" in scope["query_string"]) == ("/api/v2/alerts", True)
        await asyncio.sleep(self.late_s)
        await Response(self.body, self.status, media_type="application/json")(scope, receive, send)


@pytest.fixture
async def fake(monkeypatch: pytest.MonkeyPatch) -> FakeAlertmanager:
    monkeypatch.setattr(module, "EVERY_S", 0.1)
    monkeypatch.setattr(module, "SILENT_S", 0.6)
    return FakeAlertmanager()


@pytest.fixture
async def console_of(start: Start, fake: FakeAlertmanager) -> AsyncIterator[Console]:
    async with serving(fake) as port, start(alertmanager_url=f"http://127.0.0.1:{port}/", answer_max_s=1.5) as console:
        yield console


async def names_of(stream: Any, wanted: set[str]) -> list[dict[str, Any]]:
    """The alarms as soon as they have these names."""
    async with asyncio.timeout(10):
        while True:
            found: list[dict[str, Any]] = await next_of(stream, "alarms")
            if {alarm["name"] for alarm in found} == wanted:
                return found


async def test_alarms_of_alertmanager_stand_beside_our_own_each_once(
    console_of: Console, fake: FakeAlertmanager, admin: Admin
) -> None:
    admin.given["queue", "flow"] = LineFlow.model_validate(LINE | {"waiting": 600_000})
    fake.body = orjson.dumps([
        alert("QueueLong", event_id=EVENT), alert("QueueLong", event_id="another"), alert("RedisMemoryHigh"),
        alert("SomebodyElses"), alert("WaitLong", event_id="another"),
    ])  # fmt: skip
    async with console_of.stream() as stream:
        found = {alarm["name"]: alarm for alarm in await names_of(stream, {"QueueLong", "RedisMemoryHigh"})}
    theirs, alarm = found["RedisMemoryHigh"], BY_NAME["RedisMemoryHigh"]
    assert theirs["summary"] == "RedisMemoryHigh by Prometheus"
    for text in ("severity", "meaning", "check_first", "do"):
        assert theirs[text] == getattr(alarm, text)
    assert {alarm["since_ms"] for alarm in found.values()} == {1767323045678}


@pytest.mark.parametrize(
    ("status", "body", "late_s"),
    [
        (200, b"<html>", 0.0), (200, b"{}", 0.0), (200, b"[]", 5.0),
        (200, b"[" + b" " * module.ANSWER_MAX_BYTES + b"]", 0.0),
    ],
)  # fmt: skip
async def test_what_is_no_answer_is_silence(
    fake: FakeAlertmanager, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, late_s: float
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.3)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(fake)) as client:
        alertmanager = module.Alertmanager(client, "http://alertmanager", deadline_s=0.1)

        async def says(name: str) -> bool:
            alertmanager.refresh()
            await asyncio.sleep(0)
            return [alarm.name for alarm in alertmanager.alarms(EVENT)] == [name]

        fake.status, fake.body, fake.late_s = status, body, late_s
        await wait_until(lambda: says(SILENT))
        fake.status, fake.body, fake.late_s = 200, orjson.dumps([alert("WaitLong", event_id=EVENT)]), 0.0
        await wait_until(lambda: says("WaitLong"))
        await alertmanager.close()


async def test_a_silent_alertmanager_is_said_and_holds_up_nothing(console_of: Console, fake: FakeAlertmanager) -> None:
    fake.status = 500
    async with console_of.stream() as stream:
        [said] = await names_of(stream, {SILENT})
        assert now_ms() - said["since_ms"] < 10_000
        found = [await anext(stream) for _ in range(3)]
        assert {name for name, _ in found} <= {"vitals", "processes", "change"}, "said once while it stays the same"
        ages = [data["ages"]["queue"] for name, data in found if name == "vitals"]
        assert max(ages) < 2, "the figures come as before"
        fake.status, fake.body, fake.late_s = 200, b"[]", 0.0
        assert await names_of(stream, set()) == []


async def test_a_page_opened_after_nobody_watched_does_not_begin_with_silence(
    console_of: Console, fake: FakeAlertmanager
) -> None:
    fake.body = orjson.dumps([alert("WaitLong", event_id=EVENT)])
    async with console_of.stream() as stream:
        await names_of(stream, {"WaitLong"})
    gathering, clock = console_of.app.state.deps.gathering, asyncio.get_running_loop().time
    await wait_until(lambda: gathering.known(EVENT).watchers.count == 0)
    left_s = clock()
    await wait_until(lambda: clock() - left_s > module.SILENT_S + module.EVERY_S)
    fake.late_s = 0.3
    async with console_of.stream() as stream:
        assert (await next_of(stream, "snapshot"))["alarms"] == []
        assert [alarm["name"] for alarm in await next_of(stream, "alarms")] == ["WaitLong"]


async def test_one_malformed_alert_is_left_out_and_the_others_are_shown(
    console_of: Console, fake: FakeAlertmanager
) -> None:
    good = alert("WaitLong", event_id=EVENT)
    malformed = [{"labels": 1}, None, "x", good | {"startsAt": "2026-01-02T03:04:05"}, good | {"annotations": None}]
    fake.body = orjson.dumps([*malformed, good])
    async with console_of.stream() as stream:
        await names_of(stream, {"WaitLong"})
        assert MALFORMED._value.get() == len(malformed)
        fake.body = b"[]"
        assert await names_of(stream, set()) == []
    assert MALFORMED._value.get() == 0


async def test_alerts_of_one_name_are_all_told(console_of: Console, fake: FakeAlertmanager) -> None:
    fake.body = orjson.dumps([alert("ServiceDown", f"orders-{n} is down", instance=str(n)) for n in (2, 1)])
    async with console_of.stream() as stream:
        [said] = await names_of(stream, {"ServiceDown"})
        assert said["summary"] == "2 alerts: orders-1 is down · orders-2 is down"
        fake.body = orjson.dumps([alert("ServiceDown", f"orders-{n} is down", instance=str(n)) for n in range(9)])
        [said] = await next_of(stream, "alarms")
        assert said["summary"] == "9 alerts: orders-0 is down · orders-1 is down · orders-2 is down · and 6 more"


def test_what_we_say_of_a_part_stands_beside_what_alertmanager_says_of_its_processes() -> None:
    own = [active_alarm(name, summary=f"{name}, ours", since_ms=2) for name in ("ServiceDown", "QueueLong")]
    others = [active_alarm(name, summary=f"{name}, theirs", since_ms=1) for name in ("QueueLong", "ServiceDown")]
    found = [(one.name, one.summary, one.since_ms) for one in merged(own, [*others, *others[:1]])]
    assert found == [("ServiceDown", "ServiceDown, ours · ServiceDown, theirs", 1), ("QueueLong", "QueueLong, ours", 1)]


async def test_alarms_are_sent_again_when_one_says_something_else_and_not_before(
    console_of: Console, fake: FakeAlertmanager
) -> None:
    fake.body = orjson.dumps([alert("WaitLong", event_id=EVENT)])
    async with console_of.stream() as stream:
        await names_of(stream, {"WaitLong"})
        fake.body = orjson.dumps([alert("WaitLong", "an hour", event_id=EVENT)])
        assert [alarm["summary"] for alarm in await next_of(stream, "alarms")] == ["an hour"]
        fake.body = orjson.dumps([alert("WaitLong", "an hour", event_id=EVENT) | {"startsAt": "2026-01-02T03:04:06Z"}])
        assert [alarm["since_ms"] for alarm in await next_of(stream, "alarms")] == [1767323046000]
        asked, names = fake.asked, set()
        while fake.asked < asked + 3:
            names.add((await anext(stream))[0])
        assert "alarms" not in names


async def test_among_ten_thousand_alerts_of_others_ours_is_found(
    console_of: Console, fake: FakeAlertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 15.0)
    monkeypatch.setattr(module, "EVERY_S", 5.0)  # it is asked once
    others = [alert("WaitLong", event_id=f"event-{n}") for n in range(10_000)]
    fake.body = orjson.dumps([*others, alert("WaitLong", event_id=EVENT)])
    async with console_of.stream() as stream:
        await names_of(stream, {"WaitLong"})


async def test_alertmanager_is_asked_while_somebody_watches_only(console_of: Console, fake: FakeAlertmanager) -> None:
    for _ in range(10):
        await console_of.app.state.deps.gathering.tick()
        await asyncio.sleep(0.02)
    assert fake.asked == 0
    async with console_of.stream() as stream:
        await next_of(stream, "vitals")
        await wait_until(lambda: fake.asked > 1)


async def test_what_fired_before_the_page_was_opened_is_in_its_history(console: Console, postgres: AsyncEngine) -> None:
    now_s = now_ms() // 10_000 * 10
    at = [now_s - 600 + 10 * n for n in range(61)]
    fires = {
        "QueueLong": [*at[3:6], *at[8:10], *at[40:42]],  # twice: the first gap is no longer than samples may be missed
        "LineStandsStill": at[-3:], "GoneFromTheTable": at[1:3],
    }  # fmt: skip
    assert at[8] - at[5] < MISSED_S
    rows = [Sample(EVENT, s, record(1, 5.0), {name: name.lower() for name in fires if s in fires[name]}) for s in at]
    await Samples(postgres, kept_days=30).keep(rows)
    async with console.client() as client:
        path = f"/console/api/events/{EVENT}/vitals"
        found = (await client.get(path, params={"from_ms": 0, "to_ms": now_ms()})).json()["alarms"]
    assert [(one["name"], one["summary"], one["since_ms"] // 1000, one["ended_ms"]) for one in found] == [
        ("LineStandsStill", "linestandsstill", at[-3], None),
        ("QueueLong", "queuelong", at[40], (at[41] + 10) * 1000),
        ("QueueLong", "queuelong", at[3], (at[9] + 10) * 1000),
    ]


@pytest.mark.parametrize(("age_s", "ended"), [(0, False), (MISSED_S, False), (MISSED_S + 1, True), (86_400, True)])
def test_an_alarm_of_the_last_sample_ended_with_it_unless_that_is_recent(age_s: int, ended: bool) -> None:
    [past] = past_alarms([(100, {}), (110, {"QueueLong": "many"})], now_ms=(110 + age_s) * 1000)
    assert past.ended_ms == ((110 + SAMPLE_S) * 1000 if ended else None)
