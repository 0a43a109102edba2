"""A failpoint that kills workers."""

import asyncio


class WorkerKiller:
    """Kills an order's worker once, at the failpoint chosen for that order; its lease is not released."""

    def __init__(self) -> None:
        self.points: dict[str, str] = {}
        self.killed: set[str] = set()

    async def __call__(self, name: str, reference: str) -> None:
        if self.points.get(reference) == name:
            del self.points[reference]
            self.killed.add(reference)
            raise asyncio.CancelledError
