"""Cursor pagination: one way to read a list in pages, for all lists of the admin APIs.

The cursor is the id of the last row of the page before: `before` in a list that is read newest first, `after` in one
that is read oldest first or by name. So a page costs the same wherever it is in the list, if an index has its order,
and rows that are added meanwhile are neither skipped nor shown twice. The answer's `next` is the address of the next
page, with the filters of this one; the last page has none, so that no empty page is offered.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Query, Request
from sqlalchemy import Column, ColumnElement, RowMapping, Select, select, tuple_
from starlette.datastructures import URL

from shared.postgres.engine import AsyncEngine

Cursor = TypeVar("Cursor", int, str)
Row = TypeVar("Row")

IdQuery = Annotated[int | None, Query(ge=1, le=2**63 - 1)]
PageSizeQuery = Annotated[int, Query(ge=1, le=200)]
LongPageSizeQuery = Annotated[int, Query(ge=1, le=1000, description="Programs read this list whole.")]


@dataclass(frozen=True, slots=True)
class PageRequest(Generic[Cursor]):
    """The page of the list at `url` that has at most `size` rows beyond the row `cursor`, or the first rows."""

    url: URL
    cursor: Cursor | None
    size: int
    newest_first: bool = True

    async def read(
        self, db: AsyncEngine, query: Select[Any], *order: Column[Any]
    ) -> tuple[list[RowMapping], str | None]:
        """The page's rows of this query, and the address of the next page; `order` as in `rows_of`."""
        async with db.connect() as connection:
            rows = (await connection.execute(self.rows_of(query, *order))).mappings().all()
        return self.cut(rows, lambda row: row[order[-1].name])

    def rows_of(
        self, query: Select[Any], *order: Column[Any], cursor_row: ColumnElement[bool] | None = None
    ) -> Select[Any]:
        """The page's rows of this query and one more, which says whether a next page exists.

        `order` are columns of one table; the last of them is unique in the list, and the cursor, unless `cursor_row`
        finds the cursor's row in another way.
        """
        query = query.order_by(*(column.desc() if self.newest_first else column for column in order))
        query = query.limit(self.size + 1)
        if self.cursor is None:
            return query
        if len(order) == 1:
            return query.where(order[0] < self.cursor if self.newest_first else order[0] > self.cursor)
        found = order[-1] == self.cursor if cursor_row is None else cursor_row
        place, last = tuple_(*order), select(*order).where(found).limit(1).correlate(None).scalar_subquery()
        return query.where(place < last if self.newest_first else place > last)

    def cut(self, rows: Sequence[Row], cursor_of: Callable[[Row], Cursor]) -> tuple[list[Row], str | None]:
        """The page's rows without the one more, and the address of the next page."""
        shown = list(rows[: self.size])
        if len(rows) == len(shown):
            return shown, None
        cursor = {"before" if self.newest_first else "after": cursor_of(shown[-1])}
        following = self.url.include_query_params(**cursor, page_size=self.size)
        return shown, f"{following.path}?{following.query}"


def _before_id(request: Request, before: IdQuery = None, page_size: PageSizeQuery = 50) -> PageRequest[int]:
    return PageRequest(request.url, before, page_size)


BeforeId = Annotated[PageRequest[int], Depends(_before_id)]
"""The page before a row with this number, of a list that is read newest first."""
