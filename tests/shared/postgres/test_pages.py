"""Cursor pages: each row once and in order, with the filters of the first page, and no empty page at the end."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

import pytest
from sqlalchemy import Column, DateTime, MetaData, Table, Text, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.datastructures import URL

from shared.postgres.pages import PageRequest

START = datetime(2027, 3, 5, tzinfo=UTC)
row = Table("row", MetaData(), Column("id", Text, primary_key=True), Column("at", DateTime(timezone=True)))
IDS = ["a", "b", "c", "d", "e", "f"]  # two rows at each time


@pytest.fixture
async def db(own_database: str, postgres: AsyncEngine) -> AsyncEngine:
    async with postgres.begin() as connection:
        await connection.run_sync(row.metadata.create_all)
        rows = [{"id": name, "at": START + timedelta(seconds=n // 2)} for n, name in enumerate(IDS)]
        await connection.execute(insert(row), rows)
    return postgres


async def read(db: AsyncEngine, url: str, *, size: int, newest_first: bool) -> tuple[list[str], str | None]:
    cursor = dict(parse_qsl(URL(url).query)).get("before" if newest_first else "after")
    page = PageRequest(URL(url), cursor, size, newest_first=newest_first)
    rows, following = await page.read(db, select(row), row.c.at, row.c.id)
    return [each["id"] for each in rows], following


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("size", [1, 2, 4, 6, 7])
async def test_pages_have_each_row_once_and_the_last_one_is_not_empty(
    db: AsyncEngine, size: int, newest_first: bool
) -> None:
    pages: list[list[str]] = []
    address: str | None = "http://host/rows?status=new"
    while address is not None:
        shown, address = await read(db, address, size=size, newest_first=newest_first)
        pages.append(shown)
        assert (address or "/rows?status=new&").startswith("/rows?status=new&")
    assert [name for page in pages for name in page] == (IDS[::-1] if newest_first else IDS)
    assert len(pages) == -(-len(IDS) // size)


async def test_rows_that_are_added_meanwhile_move_no_others(db: AsyncEngine) -> None:
    first, following = await read(db, "/rows", size=2, newest_first=True)
    async with db.begin() as connection:
        await connection.execute(insert(row).values(id="new", at=START + timedelta(hours=1)))
    assert following == "/rows?before=e&page_size=2"
    second, _ = await read(db, following, size=2, newest_first=True)
    assert (first, second) == (["f", "e"], ["d", "c"])
