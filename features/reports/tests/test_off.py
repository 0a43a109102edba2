"""Switched off, reports answer nowhere."""

from importlib import import_module

import httpx
import pytest

from features.reports.feature import FEATURE
from shared.features import load, package_of
from shared.web.app import public
from shared.web.parts import Part
from tests.support.running.suite import problem


@pytest.mark.parametrize("service", FEATURE.parts)
async def test_no_route_of_a_feature_that_is_switched_off_is_left(service: str) -> None:
    module = import_module(f"{package_of(service)}.app")
    app = module.create_app(module.Settings(features_off=FEATURE.name))
    part: Part = load(FEATURE.parts[service])  # type: ignore[index]
    transport = httpx.ASGITransport(public(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for route in [route for router in part.routers for route in router.routes]:
            path = route.path.format(event_id="arena", what="seats")  # type: ignore[attr-defined]
            assert problem(await client.get(path)) == (404, "not-found"), path
