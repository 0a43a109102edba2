"""Several notifiers on one port: one is killed, its fans are back elsewhere within ten seconds and miss nothing."""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from onsale.local.ports import free_port
from tests.support.engines.engines import fast_place
from tests.support.running.suite import Fan, RunningSuite, bearer
from tests.support.wait import wait_until

FANS, NOTIFIERS = 12, 2
BACK_WITHIN_S = 10.0
NEVER = httpx.Timeout(30, read=None)  # a stream is silent while nothing happens


@pytest.fixture(scope="module")
def port() -> int:
    """Chosen when it is needed: one that was free when tests were collected is somebody else's minutes later."""
    return free_port()


@pytest.fixture(scope="module")
def several(port: int) -> Iterator[RunningSuite]:
    with tempfile.TemporaryDirectory(prefix="onsale-several-", dir=fast_place()) as folder:
        words = {"NOTIFIER_RETRY_MS": "100", "NOTIFIER_PORT": str(port)}
        os.environ |= words
        running = RunningSuite(Path(folder) / "data", "--notifiers", str(NOTIFIERS)).start()
        for name in words:
            del os.environ[name]
        try:
            yield running.wait_until_ready()
        finally:
            assert running.stop() == 0, running.log_text()


def notifiers(suite: RunningSuite) -> list[int]:
    """Process ids of the suite's notifiers."""
    assert suite.process is not None
    mine = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
                parent = _parent(_parent(int(entry.name)))
            except (OSError, ValueError):
                continue
            if command[-4:-1] == [b"onsale", b"serve", b"notifier"] and parent == suite.process.pid:
                mine.append(int(entry.name))
    return mine


def listening(port: int) -> int:
    """How many sockets listen there."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def _parent(process_id: int) -> int:
    return int(Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[1])


class Listener:
    """A browser without a page: applies what it hears, comes back with its last id when the server said."""

    def __init__(self, browser: httpx.AsyncClient, fan: Fan) -> None:
        self._browser, self._fan = browser, fan
        self.sections: dict[str, int] = {}
        self.beginnings = 0
        self.open = False
        self._last_id = ""
        self._retry_s = 0.1

    async def listen(self) -> None:
        while True:
            headers = {**bearer(self._fan.token), "last-event-id": self._last_id}
            try:
                asked = f"{self._fan.path}/sections/updates"
                async with self._browser.stream("GET", asked, headers=headers, timeout=NEVER) as stream:
                    self.beginnings += stream.status_code == 200
                    await self._hear(stream)
            except httpx.HTTPError:
                pass
            self.open = False
            await asyncio.sleep(self._retry_s)

    async def _hear(self, stream: httpx.Response) -> None:
        event: dict[str, str] = {}
        async for row in stream.aiter_lines():
            self.open = True
            name, _, value = row.partition(": ")
            if name == "retry":
                self._retry_s = int(value) / 1000
            if row:
                event[name] = value
                continue
            if event.get("event") == "sections":
                self._lay(orjson.loads(event["data"]))
            self._last_id, event = event.get("id", self._last_id), {}

    def _lay(self, data: Any) -> None:
        said = {section["section_id"]: section["available_seats"] for section in data["sections"]}
        self.sections = self.sections | said if data.get("delta") else said


async def test_a_killed_notifiers_fans_are_back_elsewhere_and_miss_no_final_state(several: RunningSuite, port: int):
    event_id = await several.open_event()
    assert len(notifiers(several)) == NOTIFIERS
    await wait_until(lambda: listening(port) == NOTIFIERS, timeout_s=30)  # one is enough for the suite to be ready
    async with several.browser() as browser, asyncio.TaskGroup() as group:
        fans = [Fan(browser, event_id) for _ in range(FANS)]
        await asyncio.gather(*(fan.join() for fan in fans))
        listeners = [Listener(browser, fan) for fan in fans]
        tasks = [group.create_task(listener.listen()) for listener in listeners]
        await wait_until(lambda: all(listener.sections for listener in listeners))
        buyer = await Fan(browser, event_id).come_in()
        before = [listener.beginnings for listener in listeners]
        victim = notifiers(several)[0]
        os.kill(victim, signal.SIGKILL)
        killed_s = time.monotonic()
        await buyer.hold(seats=["A-1-1"], ga=[{"section_id": "GA1", "quantity": 2}])
        final = {"A": 39, "GA1": 48}
        await wait_until(
            lambda: all(listener.open and listener.sections == final for listener in listeners),
            timeout_s=BACK_WITHIN_S,
        )
        assert time.monotonic() - killed_s < BACK_WITHIN_S
        again = [listener.beginnings - began for listener, began in zip(listeners, before, strict=True)]
        assert any(again), "nobody listened to the one that was killed"
        assert not all(again), "everybody did"
        await wait_until(lambda: len(set(notifiers(several)) - {victim}) == NOTIFIERS == listening(port), timeout_s=30)
        for task in tasks:
            task.cancel()
    assert "will be restarted" in several.log_text()
