"""Free ports for servers, outside the kernel's ephemeral range, and the wait until a server answers."""

import asyncio
import random
import socket
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest

from onsale.errors import OperatorError
from onsale.local import ports, suite_services
from onsale.local.ports import HOST, SERVERS, free_port, free_ports, start_on_free_port
from onsale.local.process import Child
from onsale.local.suite import Suite

EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_servers_port_is_below_the_ephemeral_ports() -> None:
    port = free_port()
    assert port in SERVERS
    first = int(EPHEMERAL_PORTS.read_text().split()[0]) if EPHEMERAL_PORTS.exists() else 49_152
    assert port < first
    with socket.socket() as server:
        server.bind((HOST, port))


def test_processes_with_the_same_seed_choose_different_ports() -> None:
    chosen = []
    for _ in range(2):
        random.seed(1)
        chosen.append([free_port() for _ in range(3)])
    assert chosen[0] != chosen[1]


def test_a_port_in_use_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as first, socket.socket() as second:
        first.bind((HOST, used := free_port()))
        first.listen()
        monkeypatch.setattr(ports, "SERVERS", range(used, used + 2))
        assert free_port() == used + 1
        second.bind((HOST, used + 1))
        with pytest.raises(OperatorError, match="Fewer than 1 ports"):
            free_port()


def test_ports_chosen_one_after_the_other_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may listen on the first when the second is chosen. Two sockets with `SO_REUSEADDR` can be bound to one
    port; only listening on it fails.
    """
    monkeypatch.setattr(ports, "SERVERS", range(first := free_port(), first + 80))
    chosen = [port for _ in range(5) for port in free_ports(10)]
    assert len(set(chosen)) == 50


class RunningChild(Child):
    """A running child process with an empty log."""

    name, log_path = "The payment sandbox", Path("sandbox.log")
    returncode: int | None = None
    stopped = False

    def __init__(self) -> None:
        """No process is started."""

    def log_tail(self) -> str:
        return "its log is empty"

    async def stop(self) -> None:
        self.stopped = True


async def test_a_running_process_is_waited_for_and_reported_by_name_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "REPORT_EVERY_S", 0.05)
    monkeypatch.setattr(ports, "_is_open", lambda port: True)
    checks, reports = 0, list[str]()

    async def is_ready(port: int) -> bool:
        nonlocal checks
        checks += 1
        return checks > 20

    _, port = await start_on_free_port(lambda port: RunningChild(), is_ready, report=reports.append)
    assert port in SERVERS
    assert len(reports) > 1
    assert reports[0].startswith("Still waiting for the payment sandbox (")


async def test_a_process_that_never_answers_is_reported_in_one_sentence_and_stopped() -> None:
    async def never(port: int) -> bool:
        raise AssertionError("nothing listens there, so nothing needs to be asked")

    child = RunningChild()
    with pytest.raises(OperatorError, match=r"^The payment sandbox does not answer after 0.1 s: .* \(more in sandbox"):
        await start_on_free_port(lambda port: child, never, ready_within_s=0.1)
    assert child.stopped


async def test_services_that_start_slowly_are_waited_for_until_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second wait has a deadline that is over at once."""
    monkeypatch.setattr(ports, "REPORT_EVERY_S", 0.05)
    answers, reports = iter([*[False] * 4, True]), list[str]()

    async def starting() -> bool:
        return next(answers)

    suite = Suite(tmp_path, [], report=reports.append)
    child = RunningChild()
    await suite_services._wait_for_processes(suite, [child], {"suite-1": starting})
    assert "Still waiting for the readiness of suite-1" in reports[0]
    answers = iter([False] * 9)
    monkeypatch.setattr(suite_services, "StartupDeadline", lambda report: ports.StartupDeadline(report, within_s=0))
    with pytest.raises(OperatorError, match=r"^The readiness of suite-1 does not answer after 0 s: more in"):
        await suite_services._wait_for_processes(suite, [child], {"suite-1": starting})


async def test_a_process_that_ends_while_it_is_waited_for_is_reported_at_once(tmp_path: Path) -> None:
    async def never() -> bool:
        return False

    ended = RunningChild()
    ended.name, ended.returncode = "The process suite-1", 1
    with pytest.raises(OperatorError, match=r"^The process suite-1 has ended: its log is empty \(more in sand"):
        async with asyncio.timeout(5):
            await suite_services._wait_for_processes(Suite(tmp_path, []), [ended], {"suite-1": never})


async def test_the_suite_is_ready_when_every_process_knows_the_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process reads a moment later what another one wrote. The fans of the second command meet any of them."""
    asked = Counter[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked[str(request.url)] += 1
        return httpx.Response(200 if asked[str(request.url)] > (request.url.port or 0) - 7_000 else 404)

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    monkeypatch.setattr(suite_services, "POLL_S", 0)
    monkeypatch.setattr(httpx, "AsyncClient", lambda **_: client)
    monkeypatch.setattr(suite_services, "AdminClient", lambda *_: AsyncMock())
    monkeypatch.setattr(suite_services, "admin_key", lambda *_: "")
    events: Any = [SimpleNamespace(event_id="a"), SimpleNamespace(event_id="b")]
    await suite_services.apply(Suite(tmp_path, events, own_ports={"suite-1": 7_000, "suite-2": 7_003}))
    assert asked["http://127.0.0.1:7003/events/a"] == asked["http://127.0.0.1:7003/events/b"] == 4
    assert asked["http://127.0.0.1:7000/events/b"]
