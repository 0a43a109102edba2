"""`GET /admin/{service}/checks`: one process checks itself, for operators: its databases, its clocks and
keys, the networks that it trusts, and whether it runs as in production. It answers also while its databases do not.

Nothing is cached and nothing runs between two requests.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from sqlalchemy.ext.asyncio import AsyncEngine

from features.doctor.capacity import descriptors_check
from features.doctor.databases import check_postgres, check_redis
from shared import VERSION
from shared.contracts.admin.checks import Check, ServiceChecks, broken, ok, suspicious
from shared.process.clock_offsets import POSTGRES_NOW, STEP_MS, ahead_ms, redis_ms
from shared.process.settings import PublicSettings, ServiceSettings, removed_and_set
from shared.redis.client import Redis, primaries
from shared.routes import Service
from shared.rules.addresses import is_loopback
from shared.runtime.clock import APART_MS, describe_offset
from shared.security.auth import Viewer
from shared.security.key_reload import FIELDS
from shared.security.key_rotation import KEYS_MAX, BadKeys, RotatingKeys
from shared.security.tokens import DEVELOPMENT_KID, Keyring
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


KEY_AGE_MAX_S = 365 * 86_400
WIDE_V4, WIDE_V6 = 16, 48
NTP = "Let NTP (chrony, systemd-timesyncd) keep the clocks of both machines."


async def check_clocks(redis: Redis, db: AsyncEngine | None) -> list[Check]:
    """Raises the drivers' errors while a server does not answer."""
    offsets = [("Redis", await ahead_ms(partial(redis_ms, node))) for node in await primaries(redis)]
    if db is not None:
        async with db.connect() as connection:
            offsets.append(("PostgreSQL", await ahead_ms(partial(connection.scalar, POSTGRES_NOW))))
    clock, furthest_ms = max(offsets, key=lambda offset: abs(offset[1]))
    if abs(furthest_ms) > APART_MS:
        return [broken("Clocks", describe_offset(clock, furthest_ms), NTP)]
    found = f"{clock} is {abs(furthest_ms) / 1000:.1f} s {'ahead' if furthest_ms > 0 else 'behind'}"
    if abs(furthest_ms) > STEP_MS:
        return [suspicious("Clocks", found, NTP)]
    return [ok("Clocks", f"{' and '.join(sorted({clock for clock, _ in offsets}))} within {STEP_MS // 1000} s")]


def check_process(settings: ServiceSettings) -> list[Check]:
    """What is known without asking a server."""
    return [descriptors_check(), *check_removed(settings), *check_keys(settings), *check_exposure(settings)]


def check_removed(settings: ServiceSettings) -> list[Check]:
    """Settings of earlier versions that are still set."""
    if not (found := removed_and_set(settings)):
        return []
    advice = "Remove them. CHANGELOG.md says what holds instead."
    return [suspicious("Settings", f"have no effect any more: {', '.join(found)}", advice)]


def check_keys(settings: ServiceSettings) -> list[Check]:
    """Development keys, and the ages of those in the key file: kids and times, never a secret.

    The first keys of a file are numbered, not dated; they are at least as old as the file.
    """
    development = sorted(
        name
        for name in type(settings).model_fields.keys() - settings.unread_keys
        if isinstance(ring := getattr(settings, name), Keyring) and DEVELOPMENT_KID in ring.keys
    )
    checks = [_development_keys(settings, development)] if development else []
    return [*checks, *_key_file(settings)]


def _development_keys(settings: ServiceSettings, names: list[str]) -> Check:
    found = f"anybody can compute {', '.join(names)}"
    advice = "Create keys: `onsale keys new FOLDER`, ONSALE_SECRETS_DIR=FOLDER, ONSALE_ENVIRONMENT=production."
    return (suspicious if is_loopback(settings.host) else broken)("Keys", found, advice)


def _key_file(settings: ServiceSettings) -> list[Check]:
    if settings.keys_file is None:
        return []
    try:
        keys = RotatingKeys.read(settings.keys_file)
        file = settings.keys_file.stat()
    except (BadKeys, OSError) as bad:
        return [broken("Key file", str(bad), "Services keep the keys they have until a good file is written.")]
    if file.st_mode & 0o007:
        return [
            suspicious("Key file", "every user of the machine can read it", "chmod o= the file, and rotate its keys.")
        ]
    now_s, old = time.time(), list[str]()
    for purpose in keys.rings:
        signing = next((key for key, stage in keys.stages(purpose, now_s) if stage == "signing"), None)
        if signing is None:
            return [broken("Key file", f"no key signs {purpose} now", "Check the clock of this host.")]
        since_s = signing.signs_from_s if signing.signs_from_s > KEYS_MAX else file.st_mtime
        if now_s - since_s > KEY_AGE_MAX_S:
            old.append(f"{purpose} {signing.kid} since {datetime.fromtimestamp(since_s, UTC):%Y-%m-%d}")
    if settings.environment != "development" and (more := _secrets_of_others(settings, keys)):
        advice = "Give each service a folder of its own: `onsale keys split FOLDER`."
        return [suspicious("Key file", f"also has secrets of other services: {', '.join(more)}", advice)]
    if old:
        return [suspicious("Key file", f"sign for more than a year: {', '.join(old)}", "`onsale keys rotate PURPOSE`.")]
    return [ok("Key file", f"{len(keys.rings)} purposes, no key signs for more than a year")]


def _secrets_of_others(settings: ServiceSettings, keys: RotatingKeys) -> list[str]:
    """The purposes whose secrets this service does not sign or verify with."""
    read = {purpose for name, purpose in FIELDS.items() if name in type(settings).model_fields}
    return sorted(keys.rings.keys() - read)


def check_exposure(settings: ServiceSettings) -> list[Check]:
    """The environment, and the proxies whose word about a client's address is taken."""
    checks = []
    if settings.environment == "development":
        mode = suspicious if is_loopback(settings.host) else broken
        checks.append(mode("Environment", "development", "To sell: ONSALE_ENVIRONMENT=production."))
    elif settings.environment == "rehearsal":
        advice = "To sell: ONSALE_ENVIRONMENT=production, with HTTPS and ONSALE_SECURE_COOKIES=true."
        checks.append(suspicious("Environment", "rehearsal", advice))
    else:
        checks.append(ok("Environment", "production"))
    if isinstance(settings, PublicSettings):
        checks += [_trusted_proxies(settings), *_nameless_clients(settings)]
    return checks


def _nameless_clients(settings: PublicSettings) -> list[Check]:
    """Whether proxies name their clients: an unreadable name puts all into one limit, a missing one into none."""
    trusted, subject = settings.trusted_proxies, "Client addresses"
    advice = "Let the balancer write the client's address, and nothing else, into X-Forwarded-For."
    if unreadable_n := trusted.nameless["unreadable"]:
        found = f"{trusted.nameless_from} names clients unreadably or not at all, {unreadable_n} times since the start"
        return [broken(subject, f"{found}: they share one limit", advice)]
    if settings.environment != "development" and (absent_n := trusted.nameless["absent"]):
        found = f"requests of this machine named no client {absent_n} times: they are not limited by address"
        return [suspicious(subject, found, f"If a balancer runs on it: {advice[0].lower()}{advice[1:]}")]
    return []


def _trusted_proxies(settings: PublicSettings) -> Check:
    subject, networks = "Trusted proxies", settings.trusted_proxies.networks
    wide = [each for each in networks if each.prefixlen < (WIDE_V4 if each.version == 4 else WIDE_V6)]
    wide = [each for each in wide if not each.is_loopback]
    named = ", ".join(map(str, networks)) or "none"
    advice = "Name only the balancers' network in ONSALE_TRUSTED_PROXIES: whoever is in it can forge client addresses."
    if any(not each.is_private for each in wide):
        return broken(subject, f"{', '.join(map(str, wide))} has addresses of strangers", advice)
    if wide:
        return suspicious(subject, f"{', '.join(map(str, wide))} is wide", advice)
    only_loopback = all(each.is_loopback for each in networks)
    if settings.environment != "development" and only_loopback and not is_loopback(settings.host):
        advice = "If a balancer on another machine is in front, all fans share its address and limits: name it."
        return suspicious(subject, f"only {named}", advice)
    return ok(subject, named)
