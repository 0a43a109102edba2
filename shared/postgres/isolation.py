"""Transactions must run in READ COMMITTED: each statement sees what was committed before its locks were granted.

Under REPEATABLE READ a statement that waited for a lock continues with a snapshot from before it, so the fence of a
rebuilt Redis stock, a customer's limit and the count of available places would all be read out of date.
"""

from contextlib import suppress

from shared.errors.database import WrongDatabase
from shared.postgres.engine import DB_AWAY, AsyncEngine

REQUIRED = "read committed"


class WrongIsolation(WrongDatabase):
    """Transactions of this service would not see what was committed before their locks."""


async def check_isolation_at_start(db: AsyncEngine) -> None:
    """Raises `WrongIsolation`. A database that is away cannot be checked yet; `/readyz` checks it later."""
    with suppress(*DB_AWAY):
        await require_read_committed(db)


async def require_read_committed(db: AsyncEngine) -> None:
    """Raises `WrongIsolation` if SQLAlchemy's transactions, or those begun on the driver, run in another mode."""
    async with db.begin() as connection:
        modes = [
            str((await connection.exec_driver_sql(f"SHOW {name}")).scalar_one())
            for name in ("transaction_isolation", "default_transaction_isolation")
        ]
    wrong_mode = next((mode for mode in modes if mode != REQUIRED), None)
    if wrong_mode is not None:
        raise WrongIsolation(
            f"PostgreSQL runs this service's transactions in {wrong_mode.upper()}; it needs {REQUIRED.upper()}. "
            "Look for default_transaction_isolation in the address, the pooler or the role."
        )
