"""A sound sale, as lines and as rows, that a test changes in one point before it is checked."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from onsale.history.checker import Report, check
from onsale.history.checks import check as books
from onsale.history.checks.check import Sources
from onsale.local.engines import with_driver

Line = dict[str, Any]
START_S = 1_800_000_000
SOUND_SALE = Path(__file__).parent / "sql" / "sound_sale.sql"


def line(what: str, at_s: float, **facts: Any) -> Line:
    """A line whose answer came a tenth of a second after its request."""
    at_ms = round((START_S + at_s) * 1000)
    return {"what": what, "event_id": "arena", "sent_ms": at_ms - 100, "at_ms": at_ms, **facts}


def of_place(what: str, at_s: float, n: int, **facts: Any) -> Line:
    place = {"fan": f"fan-{n}", "epoch": 1, "lane": 0, "join_seq": n, "status": "waiting"}
    return line(what, at_s, **place | facts)


def hold(what: str, at_s: float, reservation_id: str, **facts: Any) -> Line:
    """A hold of seat A-1-2 by the first fan, for five minutes."""
    given = {
        "fan": "fan-1", "seats": ["A-1-2"], "ga": [], "total_amount_minor_units": 5000, "currency": "EUR",
        "status": "pending_payment", "until_ms": round((START_S + at_s + 299) * 1000),
    }  # fmt: skip
    return line(what, at_s, reservation_id=reservation_id, **{**given, **facts})


def order(what: str, at_s: float, **facts: Any) -> Line:
    """The only order."""
    given = {"reference": "O1", "status": "pending", "reservation_id": "R1", "total_minor": 11000, "currency": "EUR"}
    return line(what, at_s, **{**given, **facts})


def sound_lines() -> list[Line]:
    """What the fans of `sound_sale.sql` were told."""
    ga = [{"section_id": "GA1", "quantity": 2}]
    return [
        *(of_place("joined", 10 + n, n, position_in_queue=n) for n in (1, 2, 3)),
        *(of_place("position", 19, n, position_in_queue=n, estimated_wait_time=9) for n in (1, 2, 3)),
        of_place("called", 22, 1, status="ready", position_in_queue=0),
        of_place("position", 28, 2, position_in_queue=1, estimated_wait_time=5),
        of_place("position", 28, 3, position_in_queue=2, estimated_wait_time=8),
        of_place("claimed", 30, 1, jti="jti-1", expires_at_ms=(START_S + 630) * 1000),
        of_place("called", 33, 2, status="ready", position_in_queue=0),
        of_place("position", 37, 3, position_in_queue=1, estimated_wait_time=4),
        hold("held", 40, "R2"),
        hold("held", 380, "R1", seats=["A-1-1"], ga=ga, total_amount_minor_units=11000),
        order("ordered", 390, fan="fan-1", key="k1", request="r1"),
        order("order", 391),
        order("order", 395, status="confirmed"),
        order("tickets", 396, tickets=[{"ticket_id": "T1"}]),
    ]


def charge(reference: str = "O1", minor: int = 11000, refunded_minor: int = 0, *, id: str = "ch_1") -> Line:  # noqa: A002
    return {"id": id, "reference": reference, "captured_minor": minor, "refunded_minor": refunded_minor}


class Sale:
    """The sound sale in a database, with what a test adds to or changes in it."""

    def __init__(self, path: Path, url: str, connection: asyncpg.Connection) -> None:
        self.path, self._url, self._connection = path, with_driver(url), connection
        self.lines, self.charges = sound_lines(), [charge()]

    async def change(self, sql: str) -> None:
        await self._connection.execute(sql)

    def add(self, *lines: Line) -> None:
        self.lines += lines

    def write(self) -> Path:
        """The file with the lines in the order of their answers."""
        ordered = sorted(self.lines, key=lambda line: line["at_ms"])
        self.path.write_text("".join(f"{json.dumps(each)}\n" for each in ordered))
        return self.path

    async def report(self) -> Report:
        return await check(self.write(), Sources(self._url, self._url, self._url, "http://provider"))

    async def violations(self) -> list[str]:
        """The sentences of what the checker finds."""
        return [violation.sentence for violation in (await self.report()).violations]


@pytest.fixture
async def sale(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sale]:
    connection = await asyncpg.connect(with_driver(postgres_url))
    await connection.execute(SOUND_SALE.read_text())
    sound = Sale(tmp_path / "history.jsonl", postgres_url, connection)

    async def charges(_: str) -> list[Line]:
        return sound.charges

    monkeypatch.setattr(books, "charges", charges)
    yield sound
    await connection.close()
