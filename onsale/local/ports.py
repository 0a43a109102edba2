"""Starts a server on a free loopback port and waits until it answers."""

import asyncio
import random
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from onsale.errors import OperatorError
from onsale.local.process import Child

HOST = "127.0.0.1"
SERVERS = range(10_000, 32_768)  # below the ephemeral ports of Linux, macOS and IANA
PORT_ATTEMPTS, TRIES_MAX = 3, 1_000
POLL_S = 0.02
REPORT_EVERY_S = 10.0
GIVEN_MAX = 1_000
STARTS_WITHIN_S = 300.0  # for a busy machine; a process that ends meanwhile is noticed at once

_given: deque[int] = deque(maxlen=GIVEN_MAX)


def free_port() -> int:
    """As `free_ports`, one port."""
    [port] = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """Different ports on which nothing listens, which the kernel gives to no outgoing connection, and which no caller
    got lately, who may not listen yet. They do not depend on `random`'s seed: two processes with the same seed choose
    different ports.
    """
    ports: list[int] = []
    for port in random.SystemRandom().sample(SERVERS, min(TRIES_MAX, len(SERVERS))):
        if port in _given:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            ports.append(port)
            _given.append(port)
        if len(ports) == count:
            return ports
    raise OperatorError(f"Fewer than {count} ports are free from {SERVERS.start} to {SERVERS.stop - 1}.")


class StartupDeadline:
    """The time a process has to become ready; reports every ten seconds what is being waited for."""

    def __init__(
        self, report: Callable[[str], object] = lambda line: None, *, within_s: float = STARTS_WITHIN_S
    ) -> None:
        self._report, self._within_s, self._since_s = report, within_s, time.monotonic()
        self._reported_s = self._since_s

    def check(self, what: str, *, details: str) -> None:
        """Raises `OperatorError` when it has taken too long; `details` says where to read more."""
        now_s = time.monotonic()
        if now_s - self._since_s > self._within_s:
            raise OperatorError(f"{what} does not answer after {self._within_s:g} s: {details}")
        if now_s - self._reported_s > REPORT_EVERY_S:
            self._reported_s = now_s
            self._report(f"Still waiting for {what[0].lower()}{what[1:]} ({now_s - self._since_s:.0f} s) …")


async def start_on_free_port(
    launch: Callable[[int], Child], answers: Callable[[int], Awaitable[bool]], *,
    ready_within_s: float = STARTS_WITHIN_S, report: Callable[[str], object] = lambda line: None,
    again_on: int | None = None,
) -> tuple[Child, int]:  # fmt: skip
    """Launches on a free port and waits until `answers(port)`. Tries another port when this one is taken in between;
    `again_on` names the one port it must be.
    """
    attempt = 0
    while True:
        port, attempt = again_on or free_port(), attempt + 1
        child = launch(port)
        try:
            if await _comes_up(child, port, answers, StartupDeadline(report, within_s=ready_within_s)):
                return child, port
        except BaseException:
            await child.stop()
            raise
        await child.stop()
        if again_on or attempt == PORT_ATTEMPTS or "ddress already in use" not in child.log_tail():
            raise OperatorError(f"{child.name} did not start: {child.log_excerpt()}")


async def _comes_up(
    child: Child, port: int, answers: Callable[[int], Awaitable[bool]], deadline: StartupDeadline
) -> bool:  # fmt: skip
    """Whether the child answers before it ends."""
    while child.returncode is None:
        if _is_open(port) and await answers(port):
            return True
        deadline.check(child.name, details=f"{child.log_excerpt()}")
        await asyncio.sleep(POLL_S)
    return False


def _is_open(port: int) -> bool:
    """Whether something listens there; a client that asks whether it answers costs a hundred times as much."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
