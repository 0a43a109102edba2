"""Inventory is not ready behind something that gives it sessions which are not READ COMMITTED."""

from sqlalchemy.ext.asyncio import create_async_engine

from tests.inventory.conftest import Inventory


async def test_sessions_of_another_isolation_are_refused(still: Inventory, postgres_url: str) -> None:
    assert (await still.fans.get("/readyz")).status_code == 200
    theirs = {"server_settings": {"default_transaction_isolation": "repeatable read"}}
    still.room.reading = create_async_engine(postgres_url, connect_args=theirs)
    answer = await still.fans.get("/readyz")
    assert (answer.status_code, answer.json()["failing"]) == (503, ["postgres"])
    await still.room.reading.dispose()
