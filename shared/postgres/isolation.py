"""The one setting of the ledger that its guards depend on: a transaction must see what was committed before its locks.

Under REPEATABLE READ a statement that waited for a lock goes on with a snapshot from before it: the fence of a rebuilt
gate, a customer's limit and the count of what is left would all be read as they were.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

NEEDED = "read committed"


class WrongDatabase(Exception):
    """The ledger is set up so that Onsale could not keep its promises; nothing was started."""


class WrongIsolation(WrongDatabase):
    """Transactions on this ledger would not see what was committed before their locks."""


async def refuse_wrong_database(db: "AsyncEngine") -> None:
    """At start. A ledger that is away cannot be asked yet; readiness goes on asking. Raises `WrongDatabase`."""
    from shared.postgres.engine import DB_AWAY  # an operator's command knows the words above and loads no driver

    with suppress(*DB_AWAY):
        await require_read_committed(db)


async def require_read_committed(db: "AsyncEngine") -> None:
    """Raises `WrongIsolation` if transactions of this engine, or those begun on its driver, run in another mode."""
    async with db.begin() as connection:
        modes = [
            str((await connection.exec_driver_sql(f"SHOW {name}")).scalar_one())
            for name in ("transaction_isolation", "default_transaction_isolation")
        ]
    if set(modes) != {NEEDED}:
        found: Any = next(mode for mode in modes if mode != NEEDED)
        raise WrongIsolation(
            f"PostgreSQL runs this service's transactions in {found.upper()}; it needs {NEEDED.upper()}. "
            "Look for default_transaction_isolation in the address, the pooler or the role."
        )
