"""Starts a server on a free loopback port and waits until it really answers."""

import asyncio
import random
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from onsale.child import Child, EngineTrouble

HOST = "127.0.0.1"
SERVERS = range(10_000, 32_768)  # beneath what Linux, macOS and IANA keep for those who connect
PORT_ATTEMPTS, TRIES_MAX = 3, 1_000
POLL_S = 0.02


def free_port() -> int:
    """A port nobody listens on, and which the kernel gives to nobody who connects to somewhere in the meantime."""
    for port in random.sample(SERVERS, min(TRIES_MAX, len(SERVERS))):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise EngineTrouble(f"There is no free port from {SERVERS.start} to {SERVERS.stop - 1}.")


async def start_on_free_port(
    launch: Callable[[int], Child], answers: Callable[[int], Awaitable[bool]], *, ready_within_s: float
) -> tuple[Child, int]:
    """Launch on a free port until `answers(port)`; another port is tried when somebody took it in between."""
    attempt = 0
    while True:
        port, attempt = free_port(), attempt + 1
        child = launch(port)
        try:
            if await _comes_up(child, port, answers, ready_within_s=ready_within_s):
                return child, port
        except BaseException:
            await child.stop()
            raise
        await child.stop()
        if attempt == PORT_ATTEMPTS or "ddress already in use" not in child.last_words():
            raise EngineTrouble(f"{child.name} did not start: {child.last_words()} (more in {child.log_path})")


async def _comes_up(
    child: Child, port: int, answers: Callable[[int], Awaitable[bool]], *, ready_within_s: float
) -> bool:
    """True once it answers, False when it ends first."""
    deadline_s = time.monotonic() + ready_within_s
    while child.returncode is None:
        if await answers(port):
            return True
        if time.monotonic() > deadline_s:
            said = f"{child.last_words()} (more in {child.log_path})"
            raise EngineTrouble(f"{child.name} does not answer after {ready_within_s:g} s: {said}")
        await asyncio.sleep(POLL_S)
    return False
