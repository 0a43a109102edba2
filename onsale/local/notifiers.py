"""Runs several notifier processes on one port: each has its own listening socket; the kernel distributes connections.

A process that ends is restarted after a pause that grows while it keeps ending; its streams reconnect to the others
meanwhile. Limits on streams are per process.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from onsale.errors import OperatorError
from onsale.local.process import Child

POLL_S = 0.1
AGAIN_FIRST_S, AGAIN_MAX_S = 0.2, 10.0
SETTLED_S = 10.0


@dataclass
class _Slot:
    """One of the processes, and when to restart it."""

    number: int
    child: Child
    started_s: float
    backoff_s: float = AGAIN_FIRST_S
    due_s: float | None = None


class Notifiers:
    """`count` processes inside `running()`; `environment` is that of the suite's services."""

    def __init__(
        self, data_dir: Path, environment: Mapping[str, str], *, count: int, report: Callable[[str], None]
    ) -> None:
        self._data_dir, self._report = data_dir, report
        self._environment = {**environment, "NOTIFIER_SHARE_PORT": "1", "NOTIFIER_INTERNAL_PORT": "0"}
        self._slots = [_Slot(n, self._start(n), time.monotonic()) for n in range(1, count + 1)]

    @property
    def children(self) -> list[Child]:
        return [slot.child for slot in self._slots]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Inside, a process that ends is restarted; afterwards none is left."""
        keeping = asyncio.create_task(self._restart_ended())
        try:
            yield
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping
            await self.stop()

    async def stop(self) -> None:
        """Stops all at once; each closes its streams within its own time."""
        await asyncio.gather(*(child.stop() for child in self.children))

    async def _restart_ended(self) -> None:
        while True:
            for slot in self._slots:
                if slot.child.returncode is not None:
                    self._restart_if_due(slot)
            await asyncio.sleep(POLL_S)

    def _restart_if_due(self, slot: _Slot) -> None:
        """Restarts it when its pause is over."""
        now_s = time.monotonic()
        if slot.due_s is None:
            if now_s - slot.started_s > SETTLED_S:
                slot.backoff_s = AGAIN_FIRST_S
            slot.due_s, slot.backoff_s = now_s + slot.backoff_s, min(AGAIN_MAX_S, slot.backoff_s * 2)
            self._report(f"{slot.child.name} has ended ({slot.child.returncode}) and will be restarted.")
        if now_s < slot.due_s:
            return
        slot.started_s, slot.due_s = now_s, None
        with suppress(OperatorError):  # tried again later
            slot.child = self._start(slot.number)

    def _start(self, number: int) -> Child:
        return Child.start(
            [sys.executable, "-P", "-m", "onsale", "serve", "notifier"],
            name=f"Notifier {number}",
            lock_path=self._data_dir / "engines" / f"notifier-{number}.lock",
            log_path=self._data_dir / "log" / f"notifier-{number}.log",
            stop_signal="TERM",
            env=self._environment,
        )
