"""How reports read the database of a service: counts at most once a second for all who ask, exports page by page, so
that none is too large for memory.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar

from fastapi import Depends, Query
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime
from sqlalchemy import Row, TextClause

from shared.concurrency.background import Loops
from shared.concurrency.coalescing import CachedReads
from shared.errors.problems import InvalidRequest
from shared.postgres.engine import AsyncEngine
from shared.report.csv_export import csv_head, csv_lines
from shared.web.parts import opened

Counted = TypeVar("Counted")
STEPS_MAX, STEP_S_MAX = 400, 31 * 86_400


class Counts(AbstractAsyncContextManager["Counts"]):
    """What one service counts. However many operators watch, each count is read at most once a second, and for at most
    a tenth of the time.
    """

    def __init__(self, _state: object, _loops: Loops) -> None:
        self._reads: CachedReads[Any] = CachedReads.for_reports()

    async def __aexit__(self, *_: object) -> None:
        """Cancels the statements under way."""
        await self._reads.close()

    async def get(self, key: str, make: Callable[[], Coroutine[Any, Any, Counted]]) -> Counted:
        """What is kept under this key, or what was made now."""
        found: Counted = await self._reads.get(key, make)
        return found

    async def one(self, db: AsyncEngine, query: TextClause, **bound: Any) -> Mapping[str, Any]:
        """The one row of a statement of a module with these values."""
        [row] = await self.get(f"{id(query)} {bound}", partial(read, db, query, **bound))
        return row


ServiceCounts = Annotated[Counts, Depends(opened(Counts))]


class TimeSteps(NamedTuple):
    """`steps` steps of `step_s` seconds each, from `start` on: the values of a statement that counts by step."""

    start: datetime
    step_s: int
    steps: int


async def _time_steps(
    start: Annotated[AwareDatetime, Query(alias="from")],
    step_s: Annotated[int, Query(ge=1, le=STEP_S_MAX)],
    steps: Annotated[int, Query(ge=1, le=STEPS_MAX)] = STEPS_MAX,
) -> TimeSteps:
    if not datetime(2000, 1, 1, tzinfo=UTC) <= start <= datetime(2999, 1, 1, tzinfo=UTC):
        raise InvalidRequest("from: must be a time between the years 2000 and 2999.")
    return TimeSteps(start, step_s, steps)


TimeStepsQuery = Annotated[TimeSteps, Depends(_time_steps)]


async def read(db: AsyncEngine, query: TextClause, **bound: Any) -> list[dict[str, Any]]:
    """The rows of one statement."""
    async with db.connect() as connection:
        return [dict(row) for row in (await connection.execute(query, bound)).mappings()]


async def pages(
    db: AsyncEngine, query: TextClause, last: Sequence[str], **bound: Any
) -> AsyncIterator[Sequence[Row[Any]]]:
    """Some rows at a time: each page is bound to the columns `last` of the row before it. During a sale the pages are
    not of one moment.
    """
    while True:
        async with db.connect() as connection:
            rows = (await connection.execute(query, bound)).all()
        if not rows:
            return
        yield rows
        bound |= {name: getattr(rows[-1], name) for name in last}


async def csv_file(columns: Iterable[str], rows: AsyncIterator[Iterable[Iterable[Any]]]) -> AsyncIterator[bytes]:
    """The parts of a CSV file: its head, then the lines of some rows at a time."""
    yield csv_head(columns)
    async for some in rows:
        yield csv_lines(some)


def csv_download(name: str, columns: Iterable[str], rows: AsyncIterator[Iterable[Iterable[Any]]]) -> StreamingResponse:
    """The answer that a browser saves as `<name>.csv`."""
    headers = {"content-disposition": f'attachment; filename="{name}.csv"', "cache-control": "no-store"}
    return StreamingResponse(csv_file(columns, rows), media_type="text/csv; charset=utf-8", headers=headers)
