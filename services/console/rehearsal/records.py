"""The last rehearsal of each event, in Redis, so that every console answers the same whichever runs it.

The console that runs one keeps a mark, which says so. Without the mark nobody runs it: a console that died left its
record as it was. Any console stops a rehearsal by writing into the mark.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from shared.contracts.admin.console import RehearsalView
from shared.errors.problems import Unavailable
from shared.redis.client import REDIS_AWAY, Redis

KEPT_S, MARK_S, STOP_S = 30 * 86_400, 15, 60
STOP = b"stop"


class Records:
    """All records. Each method raises `Unavailable` without Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def mark(self, event_id: str, process: str) -> bool:
        """Whether this process runs the event's rehearsal from now on; not while another does."""
        with _redis_needed():
            return bool(await self._redis.set(_mark(event_id), process, nx=True, ex=MARK_S))

    async def renew(self, event_id: str, process: str) -> bool:
        """Keeps the mark, also after Redis lost it; false if somebody said to stop."""
        with _redis_needed():
            mark = await self._redis.get(_mark(event_id))
            if mark in (None, process.encode()):
                await self._redis.set(_mark(event_id), process, ex=MARK_S)
                return True
            return False

    async def say_stop(self, event_id: str) -> None:
        """Tells whoever runs it to stop."""
        with _redis_needed():
            await self._redis.set(_mark(event_id), STOP, xx=True, ex=STOP_S)

    async def unmark(self, event_id: str) -> None:
        with _redis_needed():
            await self._redis.delete(_mark(event_id))

    async def write(self, view: RehearsalView) -> None:
        with _redis_needed():
            await self._redis.set(_record(view.event_id), view.model_dump_json(), ex=KEPT_S)

    async def read(self, event_id: str) -> RehearsalView | None:
        """One that nobody runs any more, and that has not ended, is lost."""
        with _redis_needed():
            text, marked = await self._redis.get(_record(event_id)), await self._redis.exists(_mark(event_id))
        if text is None:
            return None
        view = RehearsalView.model_validate_json(text)
        return view if marked or view.state != "running" else view.model_copy(update={"state": "lost"})

    async def forget(self, event_id: str) -> None:
        with _redis_needed():
            await self._redis.delete(_record(event_id))


@contextmanager
def _redis_needed() -> Iterator[None]:
    try:
        yield
    except REDIS_AWAY as away:
        raise Unavailable("Redis is away, and with it the records of rehearsals. Try again shortly.") from away


def _record(event_id: str) -> str:
    return f"console:rehearsal:{{{event_id}}}"


def _mark(event_id: str) -> str:
    return f"{_record(event_id)}:runs"
