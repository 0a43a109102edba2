"""Several notifiers share a port: fans of a killed one reconnect to another within ten seconds and miss no change."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from onsale.client import Fan
from onsale.local.ports import free_port
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite, bearer, running_suite
from tests.support.wait import wait_until

FANS, NOTIFIERS = 12, 2
BACK_WITHIN_S = 30.0  # for a busy machine; the drills measure how long it takes
NO_READ_TIMEOUT = httpx.Timeout(30, read=None)  # a stream is silent while nothing changes


@pytest.fixture(scope="module")
def port() -> int:
    """Chosen by a fixture, because a port that is free at collection may be in use minutes later."""
    return free_port()


@pytest.fixture(scope="module")
def suite(port: int) -> Iterator[RunningSuite]:
    with running_suite("--notifiers", str(NOTIFIERS), NOTIFIER_PORT=str(port)) as running:
        yield running


def notifiers(suite: RunningSuite) -> list[int]:
    """Process ids of the suite's notifiers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
                parent = _parent(_parent(int(entry.name)))
            except (OSError, ValueError):
                continue
            if command[-4:-1] == [b"onsale", b"serve", b"notifier"] and parent == suite.program.process.pid:
                found.append(int(entry.name))
    return found


def listening_sockets(port: int) -> int:
    """The number of sockets that listen on this port."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def _parent(process_id: int) -> int:
    return int(Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[1])


class StreamReader:
    """Reads a stream as a page does: applies frames, and reconnects with the last id after the server's retry time."""

    def __init__(self, browser: httpx.AsyncClient, fan: Fan) -> None:
        self._browser, self._fan = browser, fan
        self.sections: dict[str, int] = {}
        self.connections = 0
        self.open = False
        self._last_id = ""
        self._retry_s = 0.1

    async def run(self) -> None:
        while True:
            headers = {**bearer(self._fan.queue_token), "last-event-id": self._last_id}
            try:
                path = f"/events/{self._fan.event_id}/sections/updates"
                async with self._browser.stream("GET", path, headers=headers, timeout=NO_READ_TIMEOUT) as stream:
                    self.connections += stream.status_code == 200
                    await self._read(stream)
            except httpx.HTTPError:
                pass
            self.open = False
            await asyncio.sleep(self._retry_s)

    async def _read(self, stream: httpx.Response) -> None:
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
                self._apply(orjson.loads(event["data"]))
            self._last_id, event = event.get("id", self._last_id), {}

    def _apply(self, data: Any) -> None:
        counts = {section["section_id"]: section["available_seats"] for section in data["sections"]}
        self.sections = self.sections | counts if data.get("delta") else counts


async def test_fans_of_a_killed_notifier_reconnect_to_another_and_get_the_final_state(suite: RunningSuite, port: int):
    event_id = await suite.open_event()
    assert len(notifiers(suite)) == NOTIFIERS
    await wait_until(lambda: listening_sockets(port) == NOTIFIERS, timeout_s=30)  # the suite is ready with one
    async with suite.browser() as browser, asyncio.TaskGroup() as group:
        fans = [fan_of(browser, event_id) for _ in range(FANS)]
        await asyncio.gather(*(fan.join() for fan in fans))
        readers = [StreamReader(browser, fan) for fan in fans]
        tasks = [group.create_task(reader.run()) for reader in readers]
        await wait_until(lambda: all(reader.sections for reader in readers))
        buyer = await fan_of(browser, event_id).come_in()
        before = [reader.connections for reader in readers]
        killed_pid = notifiers(suite)[0]
        os.kill(killed_pid, signal.SIGKILL)
        killed_s = time.monotonic()
        await buyer.hold({"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 2}]})
        final = {"A": 39, "GA1": 48}
        await wait_until(
            lambda: all(reader.open and reader.sections == final for reader in readers),
            timeout_s=BACK_WITHIN_S,
        )
        assert time.monotonic() - killed_s < BACK_WITHIN_S
        reconnections = [
            reader.connections - connected_before for reader, connected_before in zip(readers, before, strict=True)
        ]
        assert any(reconnections), "no fan was connected to the killed notifier"
        assert not all(reconnections), "every fan was"
        await wait_until(
            lambda: len(set(notifiers(suite)) - {killed_pid}) == NOTIFIERS == listening_sockets(port),
            timeout_s=30,
        )
        for task in tasks:
            task.cancel()
    assert "Starting it again" in suite.log_text()
