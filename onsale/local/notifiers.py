"""Several notifier processes on one port: each has a listening socket of its own, and the kernel deals connections out.

One that ends is started again after a pause that grows while it keeps ending; its listeners come back to the others
meanwhile. Limits on streams hold per process.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from onsale.local.process import Child, EngineTrouble

LOOK_S = 0.1
AGAIN_FIRST_S, AGAIN_MAX_S = 0.2, 10.0
SETTLED_S = 10.0


@dataclass
class _Post:
    """A process that is to run, and how it has fared."""

    number: int
    child: Child
    started_s: float
    again_s: float = AGAIN_FIRST_S
    due_s: float | None = None


class Notifiers:
    """`count` processes while `running()`; `environment` is what the others of the suite are given."""

    def __init__(
        self, data_dir: Path, environment: Mapping[str, str], *, count: int, say: Callable[[str], None]
    ) -> None:
        self._data_dir, self._say = data_dir, say
        self._environment = {**environment, "NOTIFIER_SHARE_PORT": "1", "NOTIFIER_INTERNAL_PORT": "0"}
        self._posts = [_Post(n, self._start(n), time.monotonic()) for n in range(1, count + 1)]

    @property
    def children(self) -> list[Child]:
        return [post.child for post in self._posts]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Inside, whoever ends is started again; afterwards none is left."""
        keeping = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping
            await self.stop()

    async def stop(self) -> None:
        """All at once: each sends its listeners away in its own time."""
        await asyncio.gather(*(child.stop() for child in self.children))

    async def _keep(self) -> None:
        while True:
            for post in self._posts:
                if post.child.returncode is not None:
                    self._see_to(post)
            await asyncio.sleep(LOOK_S)

    def _see_to(self, post: _Post) -> None:
        """Starts it again when its pause is over."""
        now_s = time.monotonic()
        if post.due_s is None:
            if now_s - post.started_s > SETTLED_S:
                post.again_s = AGAIN_FIRST_S
            post.due_s, post.again_s = now_s + post.again_s, min(AGAIN_MAX_S, post.again_s * 2)
            self._say(f"{post.child.name} has ended ({post.child.returncode}) and is started again.")
        if now_s < post.due_s:
            return
        post.started_s, post.due_s = now_s, None
        with suppress(EngineTrouble):  # the old one has still ended: tried again later
            post.child = self._start(post.number)

    def _start(self, number: int) -> Child:
        return Child.start(
            [sys.executable, "-P", "-m", "onsale", "serve", "notifier"],
            name=f"Notifier {number}",
            lock_path=self._data_dir / "engines" / f"notifier-{number}.lock",
            log_path=self._data_dir / "log" / f"notifier-{number}.log",
            stop_signal="TERM",
            env=self._environment,
        )
