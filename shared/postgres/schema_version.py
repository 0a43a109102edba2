"""Checks which migrations a service's schema has, and whether this version of the service can work on it.

Releases expand the schema first, then processes roll, then a later migration drops what is unused (contract). So a
service accepts a schema newer than itself, and refuses an older one with one clear line.
"""

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from shared.errors.database import WrongDatabase
from shared.features import package_of
from shared.runtime.logging import get_logger

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

log = get_logger("onsale.schema")
REACHED = "SELECT version_num FROM {service}.alembic_version"
DECLARED = re.compile(r'^((?:down_)?revision) = ("[^"]+"|None)$', re.MULTILINE)
NOTHING = "None"  # as the first migration names the one before it
IS_THERE = "SELECT to_regclass('{service}.alembic_version') IS NOT NULL"


class SchemaTooOld(WrongDatabase):
    """The schema is older than the service; nothing was started."""


def migrations_folder(service: str) -> Path:
    """The folder of the service's migrations."""
    package = importlib.util.find_spec(package_of(service))
    assert package is not None
    assert package.submodule_search_locations
    return Path(package.submodule_search_locations[0]) / "migrations"


@cache
def revisions(service: str) -> tuple[str, ...]:
    """Every revision this version knows, oldest first; the service needs the last one.

    Read from the text of the migrations: alembic would import itself and each of them, at every start of a service.
    """
    files = (path.read_text(encoding="utf-8") for path in (migrations_folder(service) / "versions").glob("*.py"))
    declared = (dict(DECLARED.findall(text)) for text in files)
    next_after = {names["down_revision"]: names["revision"] for names in declared}
    chain = [NOTHING]
    while following := next_after.get(chain[-1]):
        chain.append(following)
    return tuple(revision.strip('"') for revision in chain[1:])


def first_migration(service: str) -> Path:
    """The file of the service's first migration."""
    files = (migrations_folder(service) / "versions").glob("*.py")
    return next(path for path in files if ("down_revision", NOTHING) in DECLARED.findall(path.read_text("utf-8")))


def is_behind(service: str, reached: str | None) -> bool:
    """Whether a schema at `reached` lacks a migration. An unknown revision is of a newer version."""
    return reached is None or reached in revisions(service)[:-1]


async def current_revision(db: "AsyncEngine", service: str) -> str | None:
    """The revision of the service's schema; `None` if it was never migrated."""
    async with db.connect() as connection:
        return await reached(connection, service)


async def reached(connection: "AsyncConnection", service: str) -> str | None:
    """The same on this connection."""
    if not (await connection.exec_driver_sql(IS_THERE.format(service=service))).scalar_one():
        return None
    revision: str | None = (await connection.exec_driver_sql(REACHED.format(service=service))).scalar()
    return revision


class SchemaCheck:
    """Checks the schema until it is new enough once; later checks cost nothing."""

    def __init__(self, db: "AsyncEngine", service: str) -> None:
        self._db, self._service, self._fits = db, service, False

    async def check_at_start(self) -> None:
        """Raises `WrongDatabase`. If the database cannot be reached yet, `/readyz` checks it later."""
        try:
            await self.require()
        except WrongDatabase:
            raise
        except Exception as failed:  # noqa: BLE001 - any other failure is left to readiness
            log.warning("schema.not_checked", service=self._service, error=repr(failed))

    async def require(self) -> None:
        """Raises `SchemaTooOld`, or the driver's error while the database is unreachable."""
        if self._fits:
            return
        reached = await current_revision(self._db, self._service)
        if is_behind(self._service, reached):
            raise SchemaTooOld(
                f"The schema of {self._service} is at {reached or 'no revision'}; this version needs "
                f"{revisions(self._service)[-1]}: run `onsale migrate` first."
            )
        self._fits = True
