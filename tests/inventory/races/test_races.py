"""Steps of one hold at the same moment: one of them wins, and without the guard named here a test would notice."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import text

from services.inventory.reservations import expiry, holds, repository
from services.inventory.reservations.expiry import cancel_holds
from services.inventory.reservations.repository import ReservationRow, read_reservations
from tests.inventory.conftest import EVENT, Inventory

OF_NOBODY = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) AS now_ms, CAST(:ids AS text[])")


async def made(inventory: Inventory, holder: str = "fan", seat: str = "A-1-1") -> str:
    answer = await inventory.reserve(holder, seats=[seat], ga_section="GA1", ga_quantity=2)
    return str(answer.json()["reservation_id"])


class Meeting:
    """Two who read meet before either goes on; who is kept out by a lock is waited for in vain."""

    def __init__(self) -> None:
        self._here, self._both = 0, asyncio.Event()

    async def read(self, connection: Any, ids: Sequence[str]) -> dict[str, ReservationRow]:
        records = await read_reservations(connection, ids)
        self._here += 1
        if self._here == 2:
            self._both.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._both.wait(), 0.2)
        return records


@pytest.mark.parametrize("guarded", [True, False])
async def test_of_sale_and_release_at_once_one_happens(
    still: Inventory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The reservation's lock. Without it both are decided on the same state: sold, and given back."""
    reservation_id = await made(still)
    await still.step("begin-payment", reservation_id, "order-1")
    monkeypatch.setattr(repository, "read_reservations", Meeting().read)
    if not guarded:
        monkeypatch.setattr(repository, "LOCK", OF_NOBODY)
    steps = (still.step(verb, reservation_id, "order-1") for verb in ("confirm", "release"))
    words = sorted(step["outcome"] for step in await asyncio.gather(*steps))
    assert words == (["done", "ended"] if guarded else ["done", "done"])
    assert (await still.broken() == []) == guarded


@pytest.mark.parametrize("guarded", [True, False])
async def test_what_is_given_back_ten_times_at_once_comes_back_once(
    still: Inventory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The database ends only what nobody has ended yet. Without that, places come back that somebody else has."""
    state = still.state
    for i in range(6):
        await made(still, f"other-{i}", f"A-3-{i + 1}" if i < 5 else "B-1-1")
    reservation_id = await made(still)
    if not guarded:
        guard = " AND locked.status = 'pending_payment'"
        assert guard in str(expiry.CANCEL)
        monkeypatch.setattr(expiry, "CANCEL", text(str(expiry.CANCEL).replace(guard, "")))
    ends = (
        cancel_holds(state.db, state.redis_stock, EVENT, [reservation_id], reason="cancelled", now_ms=0, actor="fan")
        for _ in range(4 if not guarded else 10)
    )
    ended = [ids for ids in await asyncio.gather(*ends) if ids]
    assert len(ended) == (1 if guarded else 4)
    assert (await still.broken() == []) == guarded
    if guarded:
        assert (await still.left("A"), await still.left("GA1")) == ((10, 5), (8, 12))


async def test_fan_operator_order_and_deadline_may_all_end_it(still: Inventory) -> None:
    """Whoever comes first; the others find it ended, and its places come back once."""
    state, reservation_id = still.state, await made(still)
    still.travel(606_000)
    await asyncio.gather(
        still.mine("DELETE", reservation_id), still.mine("DELETE", reservation_id),
        still.admin("POST", f"/reservations/{reservation_id}/release"),
        still.admin("POST", f"/events/{EVENT}/release-all"),
        still.step("release", reservation_id, "order-1"), state.expiry_worker.sweep(), state.expiry_worker.scan(),
    )  # fmt: skip
    assert (await still.left("A"), await still.left("GA1")) == ((15, 0), (20, 0))
    assert await still.broken(at_rest=True) == []
    query = text("SELECT count(*) FROM inventory.release_log")
    async with state.autocommit_db.connect() as connection:
        assert (await connection.execute(query)).scalar_one() == 2, "one line for the seat, one for the floor"


@pytest.mark.parametrize("guarded", [True, False])
async def test_of_five_extensions_at_once_one_is_given(
    still: Inventory, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    reservation_id = await made(still)
    if not guarded:
        guard = " AND NOT mine.extended"
        assert guard in str(holds.EXTEND)
        monkeypatch.setattr(holds, "EXTEND", text(str(holds.EXTEND).replace(guard, "")))
    extensions = (still.mine("POST", reservation_id, more="/extend") for _ in range(5))
    given = [answer.status_code for answer in await asyncio.gather(*extensions)].count(200)
    assert given == 1 if guarded else given > 1
