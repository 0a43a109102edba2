"""Settings of PostgreSQL: its URL, the number of connections, and the time limit of every wait.

docs/reference/limits.md gives the reason for each default.
"""

from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings


class PostgresSettings(BaseSettings):
    """Part of every service's settings."""

    postgres_url: str = Field(
        "postgresql+asyncpg://postgres@127.0.0.1:5432/onsale",
        description="PostgreSQL 15 or newer, one database for all services or one each. Name several servers as "
        "one:5432,two:5432; the one that accepts writes is used.",
    )
    postgres_pool_max: int = Field(10, ge=1, le=200, description="Most connections of this process.")
    postgres_pool_wait_s: float = Field(
        5, gt=0, le=60, description="How long a request waits for a free connection before the answer is 503."
    )
    postgres_connect_timeout_s: float = Field(
        3, gt=0, le=60, description="How long to wait for one server to accept a connection before the next is tried."
    )
    postgres_lock_timeout_ms: int = Field(
        4_000, ge=100, le=60_000, description="How long a statement waits for a row lock."
    )
    postgres_statement_timeout_ms: int = Field(
        10_000, ge=100, le=600_000, description="How long one statement may run on the server."
    )
    postgres_idle_transaction_timeout_ms: int = Field(
        30_000, ge=1_000, le=600_000, description="How long a transaction may stay idle before the server ends it."
    )
    postgres_answer_timeout_s: float = Field(
        15, gt=0, le=600, description="How long to wait for any answer before the server counts as gone."
    )

    @model_validator(mode="after")
    def _order_the_waits(self) -> Self:
        """The inner limit must expire first, or the outer one hides the cause."""
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
