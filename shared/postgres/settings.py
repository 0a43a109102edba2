"""PostgreSQL: its URL and the number of connections are settings; the time limit of every wait is not.

docs/reference/limits.md gives the reason for each default.
"""

from dataclasses import dataclass

from pydantic import Field
from pydantic_settings import BaseSettings

POOL_MAX = 10


class PostgresSettings(BaseSettings):
    """Part of every service's settings."""

    postgres_url: str = Field(
        "postgresql+asyncpg://postgres@127.0.0.1:5432/onsale",
        description="PostgreSQL 15 or newer, one database for all services or one each. Name several servers as "
        "one:5432,two:5432; the one that accepts writes is used.",
    )
    postgres_pool_max: int = Field(
        POOL_MAX,
        ge=1,
        le=200,
        description="Most connections of this process: all together must fit into PostgreSQL's max_connections.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How long each wait may last. The inner ones end first, or an outer one would hide the cause."""

    pool_wait_s: float = 5.0  # for a free connection; after it the answer is 503
    connect_timeout_s: float = 3.0  # for one server to accept a connection, before the next is tried
    lock_timeout_ms: int = 4_000  # of a statement for a row lock
    statement_timeout_ms: int = 10_000  # of one statement on the server
    idle_transaction_timeout_ms: int = 30_000  # of a transaction that does nothing, before the server ends it
    answer_timeout_s: float = 15.0  # for any answer, before the server counts as gone


WAITS = Waits()
