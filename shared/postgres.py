"""Connections to PostgreSQL: one engine a service, READ COMMITTED, every wait bounded."""

import importlib.resources
from typing import Any

from sqlalchemy import MetaData, TextClause, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

LEDGER_AWAY = (OperationalError, InterfaceError, PoolTimeout, OSError)

__all__ = ["LEDGER_AWAY", "AsyncConnection", "AsyncEngine", "DBAPIError", "connect", "metadata", "statement"]


def metadata(schema: str) -> MetaData:
    """Tables of one service, in a schema of its own, with constraint names that migrations can rely on."""
    return MetaData(
        schema=schema,
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        },
    )


def connect(
    url: str, *, pool_max: int, name: str, statement_timeout_ms: int = 10_000, lock_timeout_ms: int = 4_000
) -> AsyncEngine:
    """An engine whose connections give up on locks and statements in time and name themselves to the server."""
    settings: dict[str, Any] = {
        "application_name": f"onsale-{name}",
        "statement_timeout": str(statement_timeout_ms),
        "lock_timeout": str(lock_timeout_ms),
        "idle_in_transaction_session_timeout": "30000",
        "default_transaction_isolation": "read committed",
        "jit": "off",
    }
    return create_async_engine(
        url,
        pool_size=pool_max,
        max_overflow=0,
        pool_timeout=5,
        pool_pre_ping=False,
        connect_args={"server_settings": settings, "timeout": 5},
    )


def statement(package: str, verb: str) -> TextClause:
    """The statement of `<package>/sql/<verb>.sql`; arrays are bound as `CAST(:name AS bigint[])`."""
    return text(raw_statement(package, verb))


def raw_statement(package: str, verb: str) -> str:
    """The same as the driver takes it, with `$1` and on."""
    return importlib.resources.files(package).joinpath("sql", f"{verb}.sql").read_text()
