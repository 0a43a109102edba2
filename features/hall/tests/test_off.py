"""Switched off, the feature leaves a sale that shows no seats."""

import pytest

from features.hall.feature import FEATURE
from features.hall.inventory.api import PART
from tests.inventory.conftest import EVENT, Inventory, event_file, settings_of
from tests.notifier.conftest import Start
from tests.notifier.tokens import signed_pass
from tests.support.running.suite import problem
from tests.support.wait import wait_until

OFF = frozenset({FEATURE.name})


@pytest.fixture
def settings(redis_url: str, postgres_url: str):
    return settings_of(redis_url, postgres_url).model_copy(update={"features_off": OFF})


async def test_no_route_is_left_and_a_file_that_needs_it_is_refused(inventory: Inventory) -> None:
    shown = (await inventory.fans.get(f"/events/{EVENT}")).json()
    assert (shown["map_hash"], shown["brand"], shown["picture"]) == (None, None, None)
    routes = [*PART.fast_routes, *(route for router in PART.routers for route in router.routes)]
    for route in routes:
        path = route.path.format(event_id=EVENT, file=f"{'0' * 24}.png", name="logo.svg")  # type: ignore[attr-defined]
        assert problem(await inventory.fans.get(path)) == (404, "not-found"), path
    await inventory.hold(seats=["A-1-1"])
    refused = await inventory.put(event_file() | {"brand": {"name": "Polar"}})
    assert problem(refused) == (422, "invalid-request")
    assert refused.json()["detail"] == "brand: the feature hall is switched off here."


async def test_a_stream_shows_no_seats(start: Start) -> None:
    notifier = await start(features_off=OFF)
    refused = await notifier.listen("?seats=*", token=signed_pass())
    await wait_until(lambda: refused.complete)
    assert (refused.status, refused.problem) == (404, "not-found")
    await notifier.connect()
