"""A feature that is switched off answers no operator."""

from importlib import import_module

import pytest
from fastapi.routing import APIRoute

from shared.features import Feature, installed, load, package_of
from shared.routes import Service

PARTS = [(each, service) for each in installed() for service in each.parts if load(each.parts[service]).routers]


@pytest.mark.parametrize(("feature", "service"), PARTS, ids=lambda each: getattr(each, "name", each))
def test_no_route_of_a_feature_that_is_switched_off_is_left(feature: Feature, service: Service) -> None:
    module = import_module(f"{package_of(service)}.app")
    known = module.create_app(module.Settings(features_off=feature.name)).openapi()["paths"]
    routes = [route for router in load(feature.parts[service]).routers for route in router.routes]
    assert routes
    for route in routes:
        assert isinstance(route, APIRoute)
        assert {method.lower() for method in route.methods or ()} & known.get(route.path, {}).keys() == set(), (
            route.path
        )
