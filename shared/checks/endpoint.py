"""`GET /admin/{service}/checks`: one process checks itself, for operators. It answers also while its databases do not.

Nothing is cached and nothing runs between two requests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI, Request
from sqlalchemy.ext.asyncio import AsyncEngine

from shared import VERSION
from shared.checks.postgres_checks import check_postgres
from shared.checks.process_checks import check_clocks, check_process
from shared.checks.redis_checks import check_redis
from shared.contracts.admin.checks import Check, ServiceChecks, broken
from shared.process.settings import ServiceSettings
from shared.redis.client import Redis
from shared.routes import Service
from shared.security.auth import Viewer

DEADLINE_S = 3.0
OwnChecks = Callable[[], Sequence[Check]]


@dataclass(frozen=True, slots=True)
class Databases:
    """The open connections of a process; gateway and notifier keep no tables."""

    redis: Redis
    postgres: AsyncEngine | None = None


def checks_router(service: Service, own_checks: OwnChecks) -> APIRouter:
    """The endpoint of one service; `own_checks` are about what only it has."""
    router = APIRouter(tags=["operations"])

    @router.get(
        f"/admin/{service}/checks",
        operation_id=f"read_{service}_checks",
        summary="Check this process and its databases",
    )
    async def read_checks(request: Request, _operator: Viewer) -> ServiceChecks:
        """What `onsale doctor` prints: each check is `ok`, `look` or `broken`, with what to do."""
        found = await _all_checks(request.app, service)
        return ServiceChecks(service=service, version=VERSION, checks=[*found, *own_checks()])

    return router


async def _all_checks(app: FastAPI, service: str) -> list[Check]:
    settings: ServiceSettings = app.state.settings
    databases: Databases = app.state.databases
    production, db = settings.environment != "development", databases.postgres
    groups = [("Redis", check_redis(databases.redis, production=production))]
    if db is not None:
        most = settings.postgres_pool_max
        groups.append(("PostgreSQL", check_postgres(db, service, pool_max=most, production=production)))
    groups.append(("Clocks", check_clocks(databases.redis, db)))
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
