"""An event file is read back as operators have changed it, and applying what was read changes nothing."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from features.stock.rules import EventAllotments
from onsale import event_files
from shared.contracts.file_parts import part_of
from tests.support.running.suite import RunningSuite

Operate = Callable[..., Awaitable[str]]


async def test_the_file_shows_what_operators_changed_and_says_what_it_leaves_out(
    suite: RunningSuite, operate: Operate, tmp_path: Path
) -> None:
    event_id = await suite.open_event(fees=[{"name": "Service", "percent": "2.5"}])
    path = f"/admin/inventory/events/{event_id}"
    kept = {"name": "Kept", "kind": "house", "ga": [{"section_id": "GA1", "quantity": 5}]}
    async with suite.operator() as operator:
        assert (await operator.patch(f"/admin/events/{event_id}/room", json={"rate_per_s": 7})).is_success
        assert (await operator.post(f"{path}/sections/GA1/resize", json={"capacity": 70})).is_success
        for name in ("kept", "opened"):
            assert (await operator.put(f"{path}/allotments/{name}", json=kept)).is_success
        assert (await operator.post(f"{path}/allotments/opened/open", json={})).is_success
    shown = await operate("events", "show", event_id)
    assert "access codes (only their hashes are kept)" in shown
    file = tmp_path / "shown.yaml"
    file.write_text(shown)
    event = event_files.read(file)
    assert event.room.rate_per_s == 7
    assert event.sections[1].capacity == 70
    kept_aside = [one.allotment_id for one in part_of(event, EventAllotments).allotments]
    assert kept_aside == ["kept"], "places of an open allotment are on sale"
    assert f"{event_id}: would change nothing" in await operate("events", "apply", str(file), "--dry-run")
