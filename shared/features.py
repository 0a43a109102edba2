"""The installed features: what they add to the services and to the command line.

They are the folders of the package `features`, if there is one, and what other people's packages register in the entry
point group `onsale.features`. A feature is described by data alone, so that a process imports only its own part of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any, NamedTuple

from shared.routes import SALE_SERVICES, SERVICES, Service

OWN = "features"
GROUP = "onsale.features"


class CliCommand(NamedTuple):
    """A command or group of the command line: where it is, as `module:name`, the panel of `onsale --help` that has it,
    and the first line of its help, which needs no import.
    """

    name: str
    where: str
    panel: str
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature. `parts` has by service what it adds there, as `module:name` of a `shared.web.parts.Part`; `services`
    the package of each service that it brings, which has the modules that a service has: `app`, `settings`, `metrics`
    and, with tables, `tables`, `columns.yaml` and `migrations`.

    `name` is how operators switch it off, `what` a line for them.
    """

    name: str
    what: str
    parts: Mapping[Service, str] = field(default_factory=dict)
    services: Mapping[Service, str] = field(default_factory=dict)
    commands: Sequence[CliCommand] = ()


@cache
def installed() -> tuple[Feature, ...]:
    """All features, ours first, then by name. Raises `ValueError` if two have one name."""
    found = [*_ours(), *sorted((point.load() for point in entry_points(group=GROUP)), key=lambda each: each.name)]
    names = [feature.name for feature in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two installed features have the same name: {', '.join(twice)}")
    return tuple(found)


def services() -> tuple[Service, ...]:
    """The installed services in the order of their table: those that sell, and those that features bring."""
    brought = {service for feature in installed() for service in feature.services}
    return tuple(service for service in SERVICES if service in SALE_SERVICES or service in brought)


def package_of(service: str) -> str:
    """The package of an installed service."""
    brought = (package for feature in installed() for name, package in feature.services.items() if name == service)
    return next(brought, f"services.{service}")


def load(where: str) -> Any:
    """The object at `module:name`."""
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)


def _ours() -> Iterator[Feature]:
    spec = find_spec(OWN)
    for module in iter_modules(spec.submodule_search_locations) if spec else ():
        if module.ispkg:
            feature: Feature = load(f"{OWN}.{module.name}.feature:FEATURE")
            yield feature
