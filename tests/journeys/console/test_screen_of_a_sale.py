"""The figures of the console of a running suite are those of the services.

Steps of a rehearsal that an operator starts at the console.
"""

import json
from typing import Any

import httpx

from features.console.schemas import STREAM_PATH, Snapshot
from features.reports.sale import read_flow
from onsale.admin_client import AdminClient
from onsale.server_sent_events import messages
from tests.support.running.suite import RunningSuite, card, fan_of
from tests.support.wait import wait_until


async def snapshot(client: httpx.AsyncClient, event_id: str) -> Snapshot:
    """The first message of a new stream."""
    async with client.stream("GET", STREAM_PATH.format(event_id=event_id)) as response:
        assert response.status_code == 200, await response.aread()
        _, first, *_ = await anext(messages(response.aiter_lines()))
        return Snapshot.model_validate_json(first)


async def test_the_figures_are_those_of_the_services(suite: RunningSuite, operate: Any) -> None:
    event_id = await suite.open_event(sections=[
        {"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 40, "price_minor": 3000},
    ])  # fmt: skip
    async with suite.browser() as browser, suite.operator() as operator:
        for _ in range(2):
            fan = await fan_of(browser, event_id).come_in()
            await fan.buy(await fan.hold({"ga": [{"section_id": "GA", "quantity": 2}]}))
        declined = await fan_of(browser, event_id).come_in()
        await declined.order(
            await declined.hold({"ga": [{"section_id": "GA", "quantity": 1}]}), payment=card("decline")
        )
        holding = await fan_of(browser, event_id).come_in()
        await holding.hold({"ga": [{"section_id": "GA", "quantity": 3}]})

        async def agree() -> bool:
            flow = await read_flow(AdminClient(operator, suite.url, suite.admin_key), event_id)
            now = (await snapshot(operator, event_id)).vitals
            [section] = flow.holds.sections
            return (
                [(step.name, step.fans) for step in now.funnel] == [(step.name, step.fans) for step in flow.funnel]
                and (now.stock.free, now.stock.held, now.stock.sold) == (section.available, section.held, section.sold)
                and (now.orders.confirmed, now.orders.pending) == (
                    flow.orders.by_status["confirmed"], flow.orders.by_status["pending"])
                and (now.line.waiting, now.line.called, now.line.claimed) == (
                    flow.line.waiting, flow.line.called, flow.line.claimed)
                and now.proof.model_dump(exclude={"at_ms"}) == dict.fromkeys(
                    ("oversold", "duplicates", "inversions", "charged_twice"), 0)
                and now.orders.declines == flow.orders.declines == {"card_declined": 1}
                and (flow.sold, len(flow.funnel)) == (4, 6)
                and all(age is not None and age < 3 for age in now.ages.values())
            )  # fmt: skip

        await wait_until(agree, timeout_s=20, interval_s=0.5)
        found = await snapshot(operator, event_id)
        services = {process.service for process in found.processes}
        assert services == {"console", "gateway", "inventory", "notifier", "orders", "queue"}
        assert {"create", "open"} <= {change.action for change in found.changes if change.service == "queue"}

    shown = await operate("watch", event_id, "--once")
    assert "joined 4 → called 4 → claimed 4 → held 4 → ordered 3 → confirmed 2" in shown
    assert max(map(len, shown.splitlines())) <= 80
    state = json.loads(await operate("watch", event_id, "--once", "--json"))
    assert state["vitals"]["stock"]["sold"] == 4


FANS = 20


def path_of(event_id: str) -> str:
    return f"/console/api/events/{event_id}/rehearsal"


async def start(operator: httpx.AsyncClient, event_id: str, fans: int = FANS) -> None:
    started = await operator.post(path_of(event_id), json={"fans": fans, "reason": "the night before"})
    assert started.status_code == 202, started.text


async def room_state(operator: httpx.AsyncClient, event_id: str) -> str:
    return str((await operator.get(f"/admin/events/{event_id}/room")).json()["state"])
