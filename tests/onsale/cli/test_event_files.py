"""An event file is applied to all services or to none, and a dry run reports what it would change."""

import asyncio
from pathlib import Path
from typing import Any

from tests.support.running.command_line import Command, event_file
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite


async def stored_values(suite: RunningSuite, event_id: str) -> list[Any]:
    """The event's name in inventory, its rate in the queue, and the number of its price changes in orders."""
    async with suite.operator() as operator:
        event = await operator.get(f"/events/{event_id}")
        room = await operator.get(f"/admin/events/{event_id}/room")
        changes = await operator.get(f"/admin/orders/events/{event_id}/price-changes")
    name = event.json().get("name") if event.is_success else None
    return [name, room.json().get("rate_per_s"), len(changes.json().get("changes", []))]


async def test_an_event_file_that_one_service_refuses_changes_no_service(
    suite: RunningSuite, onsale: Command, tmp_path: Path
) -> None:
    event_id, key = "t-all-or-nothing", ("--data-dir", str(suite.data_dir))

    async def apply(*options: str, **changes: Any) -> Any:
        return await asyncio.to_thread(
            onsale, "events", "apply", event_file(tmp_path, event_id, **changes), *options, *key
        )

    dry_run = await apply("--dry-run")
    assert (dry_run.returncode, "would change inventory, orders, queue" in dry_run.stdout) == (0, True)
    assert await stored_values(suite, event_id) == [None, None, 0], "a dry run changes nothing"
    created = await apply()
    assert f"its room is a draft: onsale room open {event_id}" in created.stdout
    before = await stored_values(suite, event_id)
    assert before == ["Before", 5.0, 1]
    assert (await asyncio.to_thread(onsale, "room", "open", event_id, *key)).returncode == 0
    async with suite.browser() as browser:
        await fan_of(browser, event_id).join()
    fee = {"name": "Service", "percent": "5"}
    refused = await apply(name="After", fees=[fee], room={"rate_per_s": 9, **LOTTERY})
    assert (refused.returncode, "Fans have joined" in refused.stderr) == (2, True)
    assert await stored_values(suite, event_id) == before
    repeated = await apply()
    assert f"{event_id}: applied, changed nothing" in repeated.stdout


LOTTERY = {
    "ordering": "lottery",
    "queue_opens_at": "2029-12-01T10:00:00Z",
    "sale_starts_at": "2029-12-01T12:00:00Z",
    "lottery": {
        "entry_closes_at": "2029-12-01T11:00:00Z",
        "public_value": {"what": "the closing price", "known_at": "2029-12-01T11:30:00Z"},
    },
}
