"""`onsale doctor`'s checks of databases and processes: good ones are ok, each fault is found with what to do."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.gateway.settings import Settings as GatewaySettings
from shared.checks import postgres_checks
from shared.checks.capacity import disk_check, readable_size
from shared.checks.postgres_checks import check_postgres
from shared.checks.process_checks import check_clocks, check_exposure, check_keys
from shared.checks.redis_checks import check_redis
from shared.contracts.admin.checks import Check
from shared.redis.client import connect
from shared.security.limits import client_address

GIB = 1 << 30
GOOD = {
    "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "synchronous_standby_names": "",
    "max_connections": "100", "superuser_reserved_connections": "3", "server_version": "15.4",
    "server_version_num": "150004",
}  # fmt: skip


def verdicts(checks: list[Check]) -> dict[str, str]:
    return {check.subject: check.verdict for check in checks}


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    opened = connect(redis_url)
    yield opened
    for name, value in {"maxmemory": "0", "maxmemory-policy": "noeviction", "appendonly": "yes"}.items():
        await opened.config_set(name, value)
    await opened.aclose()


@pytest.mark.usefixtures("own_database")
async def test_the_engines_of_the_suite_are_not_broken(client: Redis, postgres: AsyncEngine) -> None:
    await client.config_set("appendonly", "yes")
    checks = await check_redis(client, production=False)
    checks += await check_postgres(postgres, "queue", pool_max=5, production=False)
    checks += await check_clocks(client, postgres)
    assert verdicts(checks)["Migrations"] == "ok"
    found = {check.subject for check in checks if check.verdict == "broken"}
    assert found <= {"PostgreSQL durability"}, "tests run without fsync"
    assert all(check.advice for check in checks if check.verdict != "ok")


@pytest.mark.parametrize(
    ("setting", "value", "advice"),
    [("maxmemory-policy", "allkeys-lru", "noeviction"), ("appendonly", "no", "CONFIG SET appendonly yes")],
)
async def test_a_redis_that_forgets_is_broken(client: Redis, setting: str, value: str, advice: str) -> None:
    await client.config_set("appendonly", "yes")
    assert verdicts(await check_redis(client, production=False))["Redis"] == "ok"
    await client.config_set(setting, value)
    checks = [check for check in await check_redis(client, production=False) if check.subject == "Redis"]
    assert [(check.verdict, advice in check.advice) for check in checks] == [("broken", True)]


@pytest.mark.parametrize(("share", "verdict"), [(0.3, "ok"), (0.7, "look"), (0.9, "broken")])
async def test_memory_is_judged_by_its_limit(client: Redis, share: float, verdict: str) -> None:
    used = (await client.info("memory"))["used_memory"]
    await client.config_set("maxmemory", str(int(used / share)))
    assert verdicts(await check_redis(client, production=False))["Redis memory"] == verdict


async def test_no_limit_of_memory_and_no_replica_are_worth_a_look(client: Redis) -> None:
    assert verdicts(await check_redis(client, production=False))["Redis memory"] == "look"
    assert verdicts(await check_redis(client, production=True))["Redis replicas"] == "look"


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes", "synchronous_commit"])
def test_a_postgresql_that_forgets_is_broken(setting: str) -> None:
    assert postgres_checks._durability(GOOD, 0).verdict == "ok"
    found = postgres_checks._durability(GOOD | {setting: "off"}, 0)
    assert found.verdict == "broken"
    assert f"ALTER SYSTEM SET {setting} = on" in found.advice


def test_a_synchronous_standby_must_be_there() -> None:
    assert postgres_checks._durability(GOOD | {"synchronous_standby_names": "b"}, 0).verdict == "broken"
    assert postgres_checks._durability(GOOD | {"synchronous_standby_names": "b"}, 1).verdict == "ok"


@pytest.mark.parametrize(("used", "pool", "verdict"), [(10, 20, "ok"), (90, 20, "look"), (1, 120, "broken")])
def test_connections_must_be_enough_for_the_pool(used: int, pool: int, verdict: str) -> None:
    assert postgres_checks._connections(GOOD, used, pool).verdict == verdict


def test_an_old_postgresql_is_broken() -> None:
    assert postgres_checks._version(GOOD).verdict == "ok"
    assert postgres_checks._version(GOOD | {"server_version_num": "140010"}).verdict == "broken"


@pytest.mark.usefixtures("own_database")
async def test_a_schema_that_is_not_migrated_is_broken(postgres: AsyncEngine) -> None:
    async with postgres.begin() as connection:
        await connection.execute(text("DELETE FROM queue.alembic_version"))
    checks = {check.subject: check for check in await check_postgres(postgres, "queue", pool_max=5, production=False)}
    assert checks["Migrations"].verdict == "broken"
    assert "onsale migrate" in checks["Migrations"].advice


@pytest.mark.parametrize(
    ("free_gib", "total_gib", "verdict"), [(50, 100, "ok"), (10, 100, "look"), (3, 100, "broken"), (0.5, 4, "broken")]
)
def test_free_disk_is_judged_by_share_and_size(free_gib: float, total_gib: int, verdict: str) -> None:
    assert disk_check("Disk", round(free_gib * GIB), total_gib * GIB).verdict == verdict
    assert readable_size(3 * GIB) == "3 GiB"


def test_development_keys_are_broken_where_others_reach_the_service() -> None:
    here, reachable = GatewaySettings(host="127.0.0.1"), GatewaySettings(host="0.0.0.0")
    assert verdicts(check_keys(here))["Keys"] == "look"
    assert verdicts(check_keys(reachable))["Keys"] == "broken"
    assert verdicts(check_exposure(reachable))["Environment"] == "broken"
    assert "development" not in str(check_keys(reachable)), "names of rings, never a secret"


@pytest.mark.parametrize(
    ("networks", "verdict"), [("10.1.2.0/24", "ok"), ("10.0.0.0/8", "look"), ("0.0.0.0/0", "broken")]
)
def test_whoever_is_trusted_as_a_proxy_is_named_narrowly(networks: str, verdict: str) -> None:
    settings = GatewaySettings.model_validate({"trusted_proxies": networks})
    assert verdicts(check_exposure(settings))["Trusted proxies"] == verdict


def test_a_proxy_that_names_no_client_is_found() -> None:
    settings = GatewaySettings.model_validate({"trusted_proxies": "10.1.2.0/24"})
    assert "Client addresses" not in verdicts(check_exposure(settings))
    headers = [(b"x-forwarded-for", b"unknown")]
    client_address({"type": "http", "client": ("10.1.2.3", 1), "headers": headers}, settings.trusted_proxies)
    checks = {check.subject: check for check in check_exposure(settings)}
    assert checks["Client addresses"].verdict == "broken"
    assert "10.1.2.3" in checks["Client addresses"].found


@pytest.mark.parametrize(("environment", "found"), [("production", True), ("development", False)])
def test_a_balancer_on_this_machine_that_names_no_client_is_found(environment: str, found: bool) -> None:
    settings = GatewaySettings.model_validate({"trusted_proxies": "127.0.0.0/8"})
    settings = settings.model_copy(update={"environment": environment})
    client_address({"type": "http", "client": ("127.0.0.1", 1), "headers": []}, settings.trusted_proxies)
    assert ("Client addresses" in verdicts(check_exposure(settings))) is found
