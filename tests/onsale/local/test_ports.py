"""Ports for servers: free, and not of those that the kernel gives to whoever connects."""

import asyncio
import random
import socket
from pathlib import Path
from typing import cast

import pytest
from starlette.types import Receive, Scope, Send

from onsale.errors import OperatorError
from onsale.local import ports, up
from onsale.local.ports import HOST, SERVERS, free_port, free_ports, start_on_free_port
from onsale.local.process import Child
from shared.web.fast_routes import answer

CONNECTING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_nobody_who_connects_is_given_a_servers_port() -> None:
    port = free_port()
    assert port in SERVERS
    first = int(CONNECTING.read_text().split()[0]) if CONNECTING.exists() else 49_152
    assert port < first
    with socket.socket() as server:
        server.bind((HOST, port))


def test_processes_with_the_same_seed_choose_different_ports() -> None:
    chosen = []
    for _ in range(2):
        random.seed(1)
        chosen.append([free_port() for _ in range(3)])
    assert chosen[0] != chosen[1]


def test_a_port_somebody_listens_on_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as first, socket.socket() as second:
        first.bind((HOST, taken := free_port()))
        first.listen()
        monkeypatch.setattr(ports, "SERVERS", range(taken, taken + 2))
        assert free_port() == taken + 1
        second.bind((HOST, taken + 1))
        with pytest.raises(OperatorError, match="Fewer than 1 ports"):
            free_port()


def test_ports_chosen_together_are_different(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two listeners with `SO_REUSEADDR` may be bound to one port; only listening fails."""
    monkeypatch.setattr(ports, "SERVERS", range(first := free_port(), first + 30))
    for _ in range(5):
        assert len(set(free_ports(10))) == 10


class Sleeper:
    """A child that lives and says little."""

    name, log_path = "The payment sandbox", Path("sandbox.log")
    returncode: int | None = None
    stopped = False

    def log_tail(self) -> str:
        return "its log is empty"

    async def stop(self) -> None:
        self.stopped = True


async def test_what_lives_is_waited_for_and_named_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "REPORT_EVERY_S", 0.05)
    asked, said = 0, list[str]()

    async def answers(port: int) -> bool:
        nonlocal asked
        asked += 1
        return asked > 20

    _, port = await start_on_free_port(lambda port: cast("Child", Sleeper()), answers, report=said.append)
    assert port in SERVERS
    assert len(said) > 1
    assert said[0].startswith("Still waiting for the payment sandbox (")


async def test_what_never_answers_is_one_sentence() -> None:
    async def never(port: int) -> bool:
        return False

    child = Sleeper()
    with pytest.raises(OperatorError, match=r"^The payment sandbox does not answer after 0.1 s: .* \(more in sandbox"):
        await start_on_free_port(lambda port: cast("Child", child), never, ready_within_s=0.1)
    assert child.stopped


async def test_processes_that_are_slow_to_start_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than any fixed time: here one that is over at once."""
    monkeypatch.setattr(ports, "REPORT_EVERY_S", 0.05)
    readies, said = iter([*[503] * 4, 200]), list[str]()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0)
        await answer(send, next(readies), b"")

    suite = up.Suite(tmp_path, [], report=said.append)
    sleeper = cast("Child", Sleeper())
    await up._wait_for_processes(suite, [sleeper], {"queue": slow})
    assert "Still waiting for the readiness of queue" in said[0]
    readies = iter([503] * 9)
    monkeypatch.setattr(up, "StartupDeadline", lambda report: ports.StartupDeadline(report, within_s=0))
    with pytest.raises(OperatorError, match=r"^The readiness of queue does not answer after 0 s: more in"):
        await up._wait_for_processes(suite, [sleeper], {"queue": slow})


async def test_a_process_that_ends_while_it_is_waited_for_is_named_at_once(tmp_path: Path) -> None:
    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 503, b"")

    ended = Sleeper()
    ended.name, ended.returncode = "The queue process", 1
    with pytest.raises(OperatorError, match=r"^The queue process has ended: its log is empty \(more in sandbox.log\)"):
        async with asyncio.timeout(5):
            await up._wait_for_processes(up.Suite(tmp_path, []), [cast("Child", ended)], {"queue": never})
