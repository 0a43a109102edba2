"""Waits until a condition holds, instead of sleeping for a guessed time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

import httpx
import redis

UP_WITHIN_S = 150.0  # a server, on a busy machine


async def wait_until(
    predicate: Callable[[], object | Awaitable[object]], *, timeout_s: float = 60.0, interval_s: float = 0.01
) -> None:
    """Returns once the predicate, sync or async, holds; fails with its source after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer = predicate()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not true within {timeout_s:g} s (last answer {answer!r}): {_described(predicate)}")
        await asyncio.sleep(interval_s)


def until(answers: Callable[[], object], *, what: str, timeout_s: float = UP_WITHIN_S) -> None:
    """Blocks until `answers()` is true. A server that does not listen yet may refuse."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            if answers():
                return
        except (httpx.HTTPError, redis.RedisError, OSError):
            pass
        assert time.monotonic() < deadline_s, f"{what} is not up in time"
        time.sleep(0.02)


def _described(predicate: Callable[[], object]) -> str:
    """The source of the predicate, if Python finds it."""
    try:
        return " ".join(inspect.getsource(predicate).split())
    except (OSError, TypeError):
        return repr(predicate)
