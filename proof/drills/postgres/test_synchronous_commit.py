"""A commit that waits for its synchronous standby stays invisible, even after the client has given up waiting."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from proof.drills.postgres_pair import postgres_pair
from shared.errors.problems import Unavailable
from shared.postgres.engine import connect, fenced
from shared.postgres.settings import PostgresSettings, Waits
from tests.support.wait import wait_until

ROWS = "SELECT n FROM place"


async def test_a_commit_whose_client_gives_up_is_invisible_until_the_standby_has_it() -> None:
    """A reader of it would acknowledge data that is lost with this primary. Commits of the pool, the driver, and in
    autocommit mode.
    """
    async with postgres_pair(synchronous=True) as pair:
        await pair.primary.query("CREATE TABLE place (n int)")
        waits = Waits(lock_timeout_ms=100, statement_timeout_ms=300, answer_timeout_s=0.5)
        db = connect(PostgresSettings(postgres_url=pair.url), name="test", waits=waits)
        pair.standby.lose()
        with pytest.raises(OperationalError):
            async with db.begin() as connection:
                await connection.execute(text("INSERT INTO place VALUES (1)"))
        with pytest.raises(Unavailable):
            async with fenced(db, "BEGIN") as driver:
                await driver.execute("INSERT INTO place VALUES (2)")
        with pytest.raises(OperationalError):
            async with db.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
                await connection.execute(text("INSERT INTO place VALUES (3)"))
        assert await pair.primary.query(ROWS) == []
        pair.standby.start()

        async def all_are_visible() -> bool:
            return sorted(row["n"] for row in await pair.primary.query(ROWS)) == [1, 2, 3]

        await wait_until(all_are_visible, timeout_s=20)
        await db.dispose()
