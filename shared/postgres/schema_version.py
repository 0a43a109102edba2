"""Which migrations a service's schema has had, and whether this version of the service can work on it.

Schemas grow first (expand), then processes roll, then what nobody uses goes (contract). So a service works on a schema
that is newer than itself, and refuses one that is older in one clear line.
"""

import importlib.util
import logging
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from shared.postgres.isolation import WrongDatabase
from shared.runtime.logging import data

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

log = logging.getLogger("onsale.schema")
REACHED = "SELECT version_num FROM {service}.alembic_version"
IS_THERE = "SELECT to_regclass('{service}.alembic_version') IS NOT NULL"


class SchemaTooOld(WrongDatabase):
    """The tables of this service are older than the service; nothing was started."""


def migrations_folder(service: str) -> Path:
    """Where the service keeps its migrations."""
    package = importlib.util.find_spec(f"services.{service}")
    assert package is not None
    assert package.submodule_search_locations
    return Path(package.submodule_search_locations[0]) / "migrations"


@cache
def revisions(service: str) -> tuple[str, ...]:
    """Every revision this version knows, oldest first; the last is what it needs."""
    from alembic.script import ScriptDirectory

    walked = ScriptDirectory(str(migrations_folder(service))).walk_revisions()
    return tuple(reversed([script.revision for script in walked]))


def is_behind(service: str, reached: str | None) -> bool:
    """Whether a schema at `reached` lacks something; one that we have never heard of is newer."""
    return reached is None or reached in revisions(service)[:-1]


async def reached_by(db: "AsyncEngine", service: str) -> str | None:
    """The revision of the service's schema; nothing when it was never migrated."""
    async with db.connect() as connection:
        if not (await connection.exec_driver_sql(IS_THERE.format(service=service))).scalar_one():
            return None
        found: str | None = (await connection.exec_driver_sql(REACHED.format(service=service))).scalar()
    return found


class SchemaCheck:
    """Asks until the schema was once new enough; from then on it is believed, and asking costs nothing."""

    def __init__(self, db: "AsyncEngine", service: str) -> None:
        self._db, self._service, self._fits = db, service, False

    async def refuse_older(self) -> None:
        """At the start: raises `WrongDatabase`. A ledger that cannot be asked yet is asked again by readiness."""
        try:
            await self.require()
        except WrongDatabase:
            raise
        except Exception as away:  # noqa: BLE001 - whatever it is, it is not for now
            log.warning("schema.not_asked", extra=data(service=self._service, error=repr(away)))

    async def require(self) -> None:
        """Raises `SchemaTooOld`, and whatever the driver raises while the ledger is away."""
        if self._fits:
            return
        reached = await reached_by(self._db, self._service)
        if is_behind(self._service, reached):
            raise SchemaTooOld(
                f"The tables of {self._service} are at {reached or 'nothing'}, this version needs "
                f"{revisions(self._service)[-1]}: run `onsale migrate` first."
            )
        self._fits = True
