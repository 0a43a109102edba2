"""What can be set about the ledger: where it is, how many connections, and how long anything about it may take.

The reason of every default stands in docs/limits.md.
"""

from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings


class PostgresSettings(BaseSettings):
    """Part of every service's settings."""

    postgres_url: str = Field(
        "postgresql+asyncpg://postgres@127.0.0.1:5432/onsale",
        description="PostgreSQL 15 or newer, one database for all services or one each. Several servers are "
        "one:5432,two:5432; the one that takes writes is used.",
    )
    postgres_pool_max: int = Field(10, ge=1, le=200, description="Connections of this process at most.")
    postgres_pool_wait_s: float = Field(
        5, gt=0, le=60, description="How long a request waits for a free connection before it is answered 503."
    )
    postgres_connect_timeout_s: float = Field(
        3, gt=0, le=60, description="How long one server may take to let us in before the next is asked."
    )
    postgres_lock_timeout_ms: int = Field(
        4_000, ge=100, le=60_000, description="How long a statement waits for somebody else's rows."
    )
    postgres_statement_timeout_ms: int = Field(
        10_000, ge=100, le=600_000, description="How long the server works at one statement."
    )
    postgres_idle_transaction_timeout_ms: int = Field(
        30_000, ge=1_000, le=600_000, description="How long the server keeps a transaction nobody goes on with."
    )
    postgres_answer_timeout_s: float = Field(
        15, gt=0, le=600, description="How long we wait for any answer before the server counts as gone."
    )

    @model_validator(mode="after")
    def _order_the_waits(self) -> Self:
        """The inner limit must come first, or the outer one hides what was wrong."""
        if (
            not self.postgres_lock_timeout_ms
            <= self.postgres_statement_timeout_ms
            < self.postgres_answer_timeout_s * 1000
        ):
            raise ValueError(
                "postgres_lock_timeout_ms must not exceed postgres_statement_timeout_ms, "
                "which must be shorter than postgres_answer_timeout_s"
            )
        return self
