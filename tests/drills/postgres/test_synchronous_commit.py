"""A commit that waits for its standby is nobody's yet: who gives up waiting must not make it seen."""

import os
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from shared.postgres import engine as ledger
from shared.postgres.fenced_transaction import fenced
from shared.postgres.settings import PostgresSettings
from shared.web.problems import Unavailable
from tests.drills.postgres_pair import Pair
from tests.support.engines.engines import fast_place
from tests.support.wait import wait_until

ROWS = "SELECT n FROM place"


@pytest.mark.drill
async def test_a_commit_that_is_given_up_is_not_seen_before_its_standby_has_it() -> None:
    """Whoever saw it would acknowledge what is lost with this primary. By the pool, by the driver, by itself."""
    with tempfile.TemporaryDirectory(prefix="onsale-pair-", dir=fast_place()) as folder:
        pair = Pair(Path(folder), synchronous=True, environ=os.environ)
        try:
            await pair.start()
            await pair.primary.ask("CREATE TABLE place (n int)")
            settings = PostgresSettings(
                postgres_url=pair.url, postgres_lock_timeout_ms=100, postgres_statement_timeout_ms=300,
                postgres_answer_timeout_s=0.5,
            )  # fmt: skip
            db = ledger.connect(settings, name="test")
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
            assert await pair.primary.ask(ROWS) == []
            pair.standby.start()

            async def safe() -> bool:
                return sorted(row["n"] for row in await pair.primary.ask(ROWS)) == [1, 2, 3]

            await wait_until(safe, timeout_s=20)
            await db.dispose()
        finally:
            pair.end()
