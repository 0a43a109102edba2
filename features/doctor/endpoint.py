"""`GET /admin/{service}/checks`: one process checks itself, for operators. It answers also while its databases do not.

Nothing is cached and nothing runs between two requests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import Any

from fastapi import APIRouter, FastAPI, Request

from features.doctor.databases import check_postgres, check_redis
from features.doctor.process_checks import check_clocks, check_process
from shared import VERSION
from shared.contracts.admin.checks import Check, ServiceChecks, broken
from shared.process.settings import ServiceSettings
from shared.routes import Service
from shared.security.auth import Viewer
from shared.web.parts import Databases, Part, parts_of

DEADLINE_S = 3.0


def doctor_part(service: Service, own_checks: Callable[[Any], Sequence[Check]] | None = None) -> Part:
    """The part of one service; `own_checks` are about what only it has."""
    router = APIRouter(tags=["operations"])

    @router.get(
        f"/admin/{service}/checks",
        operation_id=f"read_{service}_checks",
        summary="Check this process and its databases",
    )
    async def read_checks(request: Request, _operator: Viewer) -> ServiceChecks:
        """What `onsale doctor` prints: each check is `ok`, `look` or `broken`, with what to do."""
        found, settings = await _all_checks(request.app, service), request.app.state.settings
        of_parts = [part.checks(settings) for part in parts_of(service, settings.features_off) if part.checks]
        return ServiceChecks(service=service, version=VERSION, checks=[*found, *chain(*of_parts)])

    return Part(routers=[router], checks=own_checks)


async def _all_checks(app: FastAPI, service: str) -> list[Check]:
    settings: ServiceSettings = app.state.settings
    databases: Databases = app.state.databases
    redis, db = databases
    production = settings.environment != "development"
    groups = [("Redis", check_redis(redis, production=production))]
    if db is not None:
        most = settings.postgres_pool_max
        groups.append(("PostgreSQL", check_postgres(db, service, pool_max=most, production=production)))
    groups.append(("Clocks", check_clocks(redis, db)))
    found = await asyncio.gather(*(_within_deadline(subject, checks) for subject, checks in groups))
    return [*(check for group in found for check in group), *check_process(settings)]


async def _within_deadline(subject: str, checks: Awaitable[list[Check]]) -> list[Check]:
    """Errors of drivers name hosts and users, never passwords; the log of the service has their text."""
    task = asyncio.ensure_future(checks)
    done, _ = await asyncio.wait({task}, timeout=DEADLINE_S)
    if not done:
        task.cancel()
        return [broken(subject, f"no answer within {DEADLINE_S:g} s", "Bring it back; see this service's log.")]
    if failed := task.exception():
        return [broken(subject, f"cannot be checked: {type(failed).__name__}", "See this service's log.")]
    return task.result()
