"""`onsale doctor` finds what does not fit between services, and what is wrong with the operator's machine."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from onsale.admin_client import AdminClient
from onsale.data_dir import ENGINES_FILE, write_scrape_targets
from onsale.doctor.events import Event, amounts, check_schedule
from onsale.doctor.findings import merged
from onsale.doctor.here import check_here
from onsale.doctor.services import check_services
from shared import VERSION
from shared.contracts.admin import queue
from shared.contracts.admin.checks import ServiceChecks, broken, ok
from shared.contracts.catalogue import EventDetails
from shared.contracts.event_file import StockPart

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def event(*, hold_ttl_s: int = 300, show: datetime = NOW + 100 * HOUR, **room) -> Event:
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
    return Event(details, view)


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
    asked: list[list[str]] = []
    levels = [{"name": "Front", "rows": [1, 1], "price_minor": 9_000, "fee_minor": 0}]
    seated = {"section_id": "A", "name": "A", "kind": "seated", "rows": 2, "seats_per_row": 2, "price_minor": 5_000}
    floor = {"section_id": "B", "name": "B", "kind": "ga", "capacity": 1, "price_minor": 5_000, "fee_minor": 125}
    stock = StockPart.model_validate({
        "event_id": "a", "name": "A", "venue": "Hall", "currency": "KWD", "starts_at": "2030-01-01T20:00:00Z",
        "sections": [{**seated, "price_levels": levels}, floor],
    })  # fmt: skip

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/admin/orders/events/a/amounts"
        asked.append(request.url.params.get_list("each"))
        return httpx.Response(200, json={"refusals": ["a ticket of KWD 5.125: no"] * 2})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        [check] = await amounts(AdminClient(client, "http://suite.example", "key"), "a", stock)
    assert asked == [["5000", "5125", "9000"]]
    assert (check.subject, check.verdict, check.found) == ("Amounts", "broken", "a ticket of KWD 5.125: no")
