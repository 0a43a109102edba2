"""Starts a server on a free loopback port and waits until it really answers."""

import asyncio
import random
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from onsale.local.process import Child, EngineTrouble

HOST = "127.0.0.1"
SERVERS = range(10_000, 32_768)  # beneath what Linux, macOS and IANA keep for those who connect
PORT_ATTEMPTS, TRIES_MAX = 3, 1_000
POLL_S = 0.02
SAY_EVERY_S = 10.0
STARTS_WITHIN_S = 300.0  # a machine that is busy with other things; whoever ends meanwhile is noticed at once


def free_port() -> int:
    """A port nobody listens on, and which the kernel gives to nobody who connects to somewhere in the meantime. Chosen
    apart from `random`'s seed: two processes with the same seed do not choose the same port.
    """
    for port in random.SystemRandom().sample(SERVERS, min(TRIES_MAX, len(SERVERS))):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise EngineTrouble(f"There is no free port from {SERVERS.start} to {SERVERS.stop - 1}.")


class Patience:
    """Waits for what starts as long as it lives, and says every ten seconds what it waits for."""

    def __init__(self, say: Callable[[str], object] = lambda line: None, *, within_s: float = STARTS_WITHIN_S) -> None:
        self._say, self._within_s, self._since_s = say, within_s, time.monotonic()
        self._said_s = self._since_s

    def keep(self, what: str, *, told: str) -> None:
        """Raises `EngineTrouble` when it has lasted too long; `told` is where to read more."""
        now_s = time.monotonic()
        if now_s - self._since_s > self._within_s:
            raise EngineTrouble(f"{what} does not answer after {self._within_s:g} s: {told}")
        if now_s - self._said_s > SAY_EVERY_S:
            self._said_s = now_s
            self._say(f"Still waiting for {what[0].lower()}{what[1:]} ({now_s - self._since_s:.0f} s) …")


async def start_on_free_port(
    launch: Callable[[int], Child], answers: Callable[[int], Awaitable[bool]], *,
    ready_within_s: float = STARTS_WITHIN_S, say: Callable[[str], object] = lambda line: None,
    again_on: int | None = None,
) -> tuple[Child, int]:  # fmt: skip
    """Launch on a free port until `answers(port)`; another port is tried when somebody took it in between. `again_on`
    names the one port it must be.
    """
    attempt = 0
    while True:
        port, attempt = again_on or free_port(), attempt + 1
        child = launch(port)
        try:
            if await _comes_up(child, port, answers, Patience(say, within_s=ready_within_s)):
                return child, port
        except BaseException:
            await child.stop()
            raise
        await child.stop()
        if again_on or attempt == PORT_ATTEMPTS or "ddress already in use" not in child.last_words():
            raise EngineTrouble(f"{child.name} did not start: {child.last_words()} (more in {child.log_path})")


async def _comes_up(
    child: Child, port: int, answers: Callable[[int], Awaitable[bool]], patience: Patience
) -> bool:  # fmt: skip
    """True once it answers, False when it ends first."""
    while child.returncode is None:
        if await answers(port):
            return True
        patience.keep(child.name, told=f"{child.last_words()} (more in {child.log_path})")
        await asyncio.sleep(POLL_S)
    return False
