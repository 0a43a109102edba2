"""`onsale doctor` finds what does not fit between services, and what is wrong with databases, processes, machines."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import AsyncMock

import httpx
import pytest
from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from features.doctor import databases, process
from features.doctor.capacity import disk_check, readable_size
from features.doctor.cli import ScheduledEvent, amounts, check_here, check_schedule, check_services, merged
from features.doctor.databases import check_postgres, check_redis
from features.doctor.process import check_clocks, check_exposure, check_keys
from onsale.admin_client import AdminClient
from onsale.data_dir import ENGINES_FILE, write_scrape_targets
from services.gateway.settings import Settings as GatewaySettings
from services.queue.app import create_app
from services.queue.settings import Settings as QueueSettings
from shared import VERSION
from shared.contracts.admin import queue
from shared.contracts.admin.checks import Check, ServiceChecks, broken, ok
from shared.contracts.catalogue import EventDetails
from shared.contracts.event_file import StockPart
from shared.redis.client import connect
from shared.security.auth import AdminKeys
from shared.security.limits import client_address
from shared.web.app import public
from shared.web.parts import Part

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def event(*, hold_ttl_s: int = 300, show: datetime = NOW + 100 * HOUR, **room) -> ScheduledEvent:
    settings = {
        "state": "open", "queue_opens_at": NOW - HOUR, "sale_starts_at": NOW, "sale_ends_at": NOW + 5 * HOUR,
        "session_s": 600, "friction": {"proof_of_work": "by_address"}, **room,
    }  # fmt: skip
    view = queue.RoomView.model_construct(**settings)
    view.__dict__["friction"] = queue.RoomView.model_fields["friction"].annotation(**settings["friction"])  # type: ignore[misc]
    limits = {"tickets_per_order": 6, "tickets_per_customer": 0, "tour_tickets_per_customer": 0}
    details = EventDetails.model_validate({
        "event_id": "a", "name": "A", "venue": "Hall", "starts_at": show, "timezone": "UTC", "currency": "EUR",
        "price_from_minor": 1, "sections": [], "limits": {**limits, "hold_ttl_s": hold_ttl_s, "pay_ttl_s": 600},
    })  # fmt: skip
    return ScheduledEvent(details, view)


@pytest.mark.parametrize(
    ("changes", "verdict", "found"),
    [
        ({}, "ok", "open"),
        ({"sale_starts_at": NOW + 9 * HOUR}, "broken", "not in this order"),
        ({"show": NOW - 2 * HOUR}, "broken", "after the show"),
        ({"show": NOW + HOUR}, "look", "ends after the show has begun"),
        ({"state": "draft"}, "broken", "draft and the sale has begun"),
        ({"state": "draft", "queue_opens_at": NOW + HOUR, "sale_starts_at": NOW + HOUR}, "look", "draft"),
        ({"hold_ttl_s": 900}, "look", "longer than session_s"),
        ({"friction": {"proof_of_work": "off"}}, "look", "as fast as its limit allows"),
    ],
)
def test_a_schedule_must_fit(changes: dict, verdict: str, found: str) -> None:
    checks = check_schedule(event(**changes), NOW)
    assert [(check.verdict, found in check.found) for check in checks] == [(verdict, True)]


def test_what_several_services_found_is_one_line() -> None:
    reports = [
        ServiceChecks(
            service=service, version="1", checks=[ok("Redis", "Valkey 9"), broken(f"Own {service}", "x", "y")]
        )
        for service in ("queue", "orders")
    ]
    findings = merged(reports)
    assert [(finding.check.subject, finding.found_by) for finding in findings if finding.check.subject == "Redis"] == [
        ("Redis", ("queue", "orders"))
    ]
    assert len(findings) == 3


async def test_a_suite_that_does_not_answer_is_one_line_and_a_silent_service_another() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        service = request.url.path.split("/")[2]
        if service in answering:
            return httpx.Response(200, json={"service": service, "version": VERSION, "checks": []})
        raise httpx.ConnectError("nothing answers")

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        answering: tuple[str, ...] = ()
        [finding] = await check_services(AdminClient(client, "http://suite.example", "key"))
        assert (finding.check.subject, finding.where) == ("Suite", "all services")
        answering = ("gateway", "queue", "inventory", "notifier")
        orders, console, version = await check_services(AdminClient(client, "http://suite.example", "key"))
    assert (orders.check.verdict, orders.found_by) == ("broken", ("orders",))
    assert (console.check.verdict, console.found_by) == ("look", ("console",)), "a sale needs no console"
    assert version.check.verdict == "ok"


async def test_this_machine_is_checked_where_a_suite_has_run(tmp_path: Path) -> None:
    assert await check_here("http://127.0.0.1:1", tmp_path) == []
    (tmp_path / ENGINES_FILE).write_text("{}")
    (tmp_path / ENGINES_FILE).chmod(0o644)
    write_scrape_targets(tmp_path, {"suite": "127.0.0.1:1"})
    found = {finding.check.subject: finding.check for finding in await check_here("http://127.0.0.1:1", tmp_path)}
    assert found["Secret files"].verdict == "broken"
    assert "chmod 600" in found["Secret files"].advice
    assert found["Prometheus targets"].verdict == "broken", "nothing answers there"


async def test_an_address_without_https_is_worth_a_look_unless_it_is_this_machine(tmp_path: Path) -> None:
    [finding] = await check_here("http://tickets.example", tmp_path)
    assert (finding.check.subject, finding.check.verdict) == ("Certificate", "look")


async def test_prices_that_no_provider_can_charge_are_named() -> None:
    asked: list[tuple[str, str]] = []
    levels = [{"name": "Front", "rows": [1, 1], "price_minor": 9_000, "fee_minor": 0}]
    seated = {"section_id": "A", "name": "A", "kind": "seated", "rows": 2, "seats_per_row": 2, "price_minor": 5_000}
    floor = {"section_id": "B", "name": "B", "kind": "ga", "capacity": 1, "price_minor": 5_000, "fee_minor": 125}
    stock = StockPart.model_validate({
        "event_id": "a", "name": "A", "venue": "Hall", "currency": "KWD", "starts_at": "2030-01-01T20:00:00Z",
        "price_types": [{"type_id": "adult", "name": "Adult"}, {"type_id": "child", "name": "Child", "percent": 50}],
        "sections": [{**seated, "price_levels": levels}, floor],
    })  # fmt: skip

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/admin/orders/events/a/amounts"
        asked.extend(request.url.params.multi_items())
        return httpx.Response(200, json={"refusals": ["a ticket of KWD 5.125: no"] * 2})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        [check] = await amounts(AdminClient(client, "http://suite.example", "key"), "a", stock)
    usual = [("each", minor) for minor in ("5000", "5125", "9000")]
    assert asked == usual + [("each_of_type", f"{minor}:child") for minor in (2500, 2625, 4500)]
    assert (check.subject, check.verdict, check.found) == ("Amounts", "broken", "a ticket of KWD 5.125: no")


# -- databases and processes ------------------------------------------------------------------------------------------


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
    assert databases._durability(GOOD, 0).verdict == "ok"
    found = databases._durability(GOOD | {setting: "off"}, 0)
    assert found.verdict == "broken"
    assert f"ALTER SYSTEM SET {setting} = on" in found.advice


def test_a_synchronous_standby_must_be_there() -> None:
    assert databases._durability(GOOD | {"synchronous_standby_names": "b"}, 0).verdict == "broken"
    assert databases._durability(GOOD | {"synchronous_standby_names": "b"}, 1).verdict == "ok"


@pytest.mark.parametrize(("used", "pool", "verdict"), [(10, 20, "ok"), (90, 20, "look"), (1, 120, "broken")])
def test_connections_must_be_enough_for_the_pool(used: int, pool: int, verdict: str) -> None:
    assert databases._connections(GOOD, used, pool).verdict == verdict


def test_an_old_postgresql_is_broken() -> None:
    assert databases._version(GOOD).verdict == "ok"
    assert databases._version(GOOD | {"server_version_num": "140010"}).verdict == "broken"


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


async def test_checks_of_a_part_are_among_those_of_its_service(monkeypatch: pytest.MonkeyPatch) -> None:
    bell = Part(checks=lambda settings: [ok("Bell", settings.environment)])
    monkeypatch.setattr(process, "_all_checks", AsyncMock(return_value=[]))
    monkeypatch.setattr(process, "parts_of", lambda service, off: [bell])
    secret = "a viewer's secret for tests only"
    app = create_app(QueueSettings(admin_keys=AdminKeys(f"eye:viewer:{secret}")))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url="http://test") as client:
        found = await client.get("/admin/queue/checks", headers={"authorization": f"Bearer {secret}"})
    assert [(check["subject"], check["found"]) for check in found.json()["checks"]] == [("Bell", "development")]
