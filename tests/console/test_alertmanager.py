"""Alertmanager's alarms stand beside the console's own, each once; without it everything else goes on."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.console.gathering import alertmanager as module
from services.console.history.alarms import MISSED_S, SAMPLE_S, past_alarms
from services.console.history.samples import Sample, Samples
from shared.alarms import ALARMS
from shared.contracts.admin.console import READ_HISTORY
from shared.runtime.clock import now_ms
from tests.console.conftest import Console, Start, next_of
from tests.console.fake_admin import EVENT, LINE
from tests.console.test_history import record
from tests.support.running.serving import serving
from tests.support.wait import wait_until

LONG_AGO = "2026-01-02T03:04:05.678Z"
SILENT = "AlertmanagerSilent"


def alert(name: str, **labels: str) -> dict[str, Any]:
    """An alert in the form of Alertmanager's API."""
    return {
        "labels": {"alertname": name, "severity": "x", **labels}, "annotations": {"summary": f"{name} by Prometheus"},
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
    monkeypatch.setattr(module, "EVERY_S", 0.5)
    monkeypatch.setattr(module, "SILENT_S", 2.0)
    return FakeAlertmanager()


@pytest.fixture
async def console_of(start: Start, fake: FakeAlertmanager) -> AsyncIterator[Console]:
    async with serving(fake) as port, start(alertmanager_url=f"http://127.0.0.1:{port}/", answer_max_s=0.6) as console:
        yield console


async def names_of(stream: Any, wanted: set[str]) -> list[dict[str, Any]]:
    """The alarms as soon as they have these names."""
    async with asyncio.timeout(10):
        while True:
            found: list[dict[str, Any]] = await next_of(stream, "alarms")
            if {alarm["name"] for alarm in found} == wanted:
                return found


async def test_alarms_of_alertmanager_stand_beside_our_own_each_once(
    console_of: Console, fake: FakeAlertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LINE, "waiting", 600_000)
    fake.body = orjson.dumps([
        alert("QueueLong", event_id=EVENT), alert("QueueLong", event_id="another"), alert("RedisMemoryHigh"),
        alert("SomebodyElses"), alert("WaitLong", event_id="another"),
    ])  # fmt: skip
    known = {alarm.name: alarm for alarm in ALARMS}
    theirs = next(name for name in known if name.startswith("Redis"))
    fake.body = fake.body.replace(b"RedisMemoryHigh", theirs.encode())
    async with console_of.stream() as stream:
        found = {alarm["name"]: alarm for alarm in await names_of(stream, {"QueueLong", theirs})}
    assert found[theirs]["summary"] == f"{theirs} by Prometheus"
    assert (found[theirs]["severity"], found[theirs]["do"]) == (known[theirs].severity, known[theirs].do)
    assert {alarm["since_ms"] for alarm in found.values()} == {1767323045678}


@pytest.mark.parametrize(
    ("status", "body", "late_s"),
    [
        (500, b"[]", 0.0), (200, b"<html>", 0.0), (200, b'[{"labels": 1}]', 0.0), (200, b"[]", 5.0),
        (200, b"[" + b" " * module.ANSWER_MAX_BYTES + b"]", 0.0),
    ],
)  # fmt: skip
async def test_a_silent_alertmanager_is_said_and_holds_up_nothing(
    console_of: Console, fake: FakeAlertmanager, status: int, body: bytes, late_s: float
) -> None:
    fake.status, fake.body, fake.late_s = status, body, late_s
    async with console_of.stream() as stream:
        [said] = await names_of(stream, {SILENT})
        assert now_ms() - said["since_ms"] < 10_000
        ages = [(await next_of(stream, "vitals"))["ages"]["queue"] for _ in range(3)]
        assert max(ages) < 2, "the figures come as before"
        fake.status, fake.body, fake.late_s = 200, b"[]", 0.0
        assert await names_of(stream, set()) == []


async def test_among_ten_thousand_alerts_of_others_ours_is_found(console_of: Console, fake: FakeAlertmanager) -> None:
    others = [alert("WaitLong", event_id=f"event-{n}") for n in range(10_000)]
    fake.body = orjson.dumps([*others, alert("WaitLong", event_id=EVENT)])
    async with console_of.stream() as stream:
        await names_of(stream, {"WaitLong"})


async def test_alertmanager_is_asked_while_somebody_watches_only(console_of: Console, fake: FakeAlertmanager) -> None:
    for _ in range(30):
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
        path = READ_HISTORY.path.format(event_id=EVENT)
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
