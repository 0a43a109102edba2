"""The installed features: what they add to the services and to the command line.

They are the folders of the package `features`, if there is one, and what other people's packages register in the entry
point group `onsale.features`. A feature is described by data alone, so that a process imports only its own part of it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from shared import VERSION
from shared.routes import SALE_SERVICES, SERVICES, Service

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.errors.problems import Problem

OWN = "features"
GROUP = "onsale.features"

FilePlace = Literal["room", "room_patch", "pace", "event", "sales"]


class BadFeature(ValueError):
    """An installed feature cannot be used, or one that is named is not installed. The message is for the operator."""


class CliCommand(NamedTuple):
    """A command or group of the command line: where it is, as `module:name`, the panel of `onsale --help` that has it,
    and the first line of its help, which needs no import. `GROUP NAME` is a command, or one of a group that has it.
    """

    name: str
    where: str
    panel: str
    help: str


class PaymentProvider(NamedTuple):
    """A payment provider, by its name in `ORDERS_PAYMENT_PROVIDERS`. Only where that names it, its module is imported.

    `open` is a function, as `module:name`: `(client, settings, timeout_s)`, with the `ExternalClient` of all providers,
    the settings of orders, which have those of the feature's part, and the time for each call. It returns a
    `shared.payment_provider.Provider`, or raises `BadFeature` if a setting is missing. `limits`, if the sandbox may
    rehearse with them (`ORDERS_SANDBOX_LIMITS`), is a function `(currency) -> ChargeLimits`, also as `module:name`.
    """

    name: str
    open: str
    limits: str | None = None


class ProblemPage(Protocol):
    """A problem as a page for people who followed a link, instead of the document for programs."""

    MEDIA_TYPE: str

    def wanted(self, method: str, accepts: "Iterable[bytes]") -> bool:
        """Whether a person asks, by the method and the values of `Accept`."""

    def page(self, problem: "Problem", language: str | None = None) -> str:
        """The page in one language or, for balancers, in every one; without quotes, backslashes and dollar signs."""

    def headers(self, problem: "Problem") -> dict[str, str]:
        """The headers besides the content type."""


class Ordering(NamedTuple):
    """An order in which lines may be called besides that of the joins, by its name in event files.

    Two objects as `module:name`: `rooms` is a `RoomOrdering` of `services.queue.rooms.model`, `ranking` a function that
    makes the `Ranking` of a line's frame, for gateways. Both count as long as the feature is installed: a line keeps
    its order when the feature is switched off.
    """

    name: str
    rooms: str
    ranking: str


class EventLogEngine(NamedTuple):
    """A system that can keep the event log, by the scheme of `ONSALE_EVENT_LOG_URL`. Only where that names it, its
    module is imported.

    `open` is a function, as `module:name`: `(url, settings)`, with the service's settings. It returns a
    `shared.messaging.log.EventLog`, or raises `LogRefused`. `needs` is what pip installs if the module lacks a library.
    """

    scheme: str
    open: str
    needs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature. `parts` has by service what it adds there, as `module:name` of a `shared.web.parts.Part`; `services`
    the package of each service that it brings, which has the modules that a service has: `app`, `settings`, `metrics`
    and, with tables, `tables`, `columns.yaml` and `migrations`. `problem_page` is a module that is a `ProblemPage`.

    `file_parts` has by place in the event file the fields that it adds there, as `module:name` of a `Body` in a module
    that imports no service: to the options of a room, to their change by an operator, to the event itself, to its
    sales.
    `name` is how operators switch it off, `what` a line for them.
    """

    name: str
    what: str
    parts: Mapping[Service, str] = field(default_factory=dict)
    services: Mapping[Service, str] = field(default_factory=dict)
    commands: Sequence[CliCommand] = ()
    providers: Sequence[PaymentProvider] = ()
    file_parts: Mapping[FilePlace, str] = field(default_factory=dict)
    problem_page: str | None = None
    orderings: Sequence[Ordering] = ()
    event_logs: Sequence[EventLogEngine] = ()


@cache
def installed() -> tuple[Feature, ...]:
    """All features, ours first, then by name. Raises `BadFeature` if one cannot be loaded, or two have one name."""
    others: list[Feature] = [load(point.value) for point in entry_points(group=GROUP)]
    found = (*_ours(), *sorted(others, key=lambda feature: feature.name))
    for what, names in (
        ("features", [feature.name for feature in found]),
        ("payment providers", [provider.name for feature in found for provider in feature.providers]),
    ):
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise BadFeature(f"two installed {what} have the same name: {', '.join(twice)}")
    return found


def payment_providers(off: Collection[str] = ()) -> dict[str, PaymentProvider]:
    """The payment providers of the installed features that are not switched off, by name."""
    return {each.name: each for feature in installed() if feature.name not in off for each in feature.providers}


def problem_page(off: Collection[str] = ()) -> ProblemPage | None:
    """How the installed features that are not switched off show a problem to people; None if by the document."""
    pages = (each.problem_page for each in installed() if each.problem_page and each.name not in off)
    page: ProblemPage | None = next(map(load, pages), None)
    return page


def orderings(off: Collection[str] = ()) -> dict[str, Ordering]:
    """The orderings of lines that installed features bring which are not switched off, by name."""
    return {each.name: each for feature in installed() if feature.name not in off for each in feature.orderings}


def event_logs(off: Collection[str] = ()) -> dict[str, EventLogEngine]:
    """The engines of the event log that are installed and not switched off, by scheme."""
    return {each.scheme: each for feature in installed() if feature.name not in off for each in feature.event_logs}


def services() -> tuple[Service, ...]:
    """The installed services in the order of their table: those that sell, and those that features bring."""
    brought = {service for feature in installed() for service in feature.services}
    return tuple(service for service in SERVICES if service in SALE_SERVICES or service in brought)


def package_of(service: str) -> str:
    """The package of an installed service."""
    brought = (package for feature in installed() for name, package in feature.services.items() if name == service)
    return next(brought, f"services.{service}")


def load(where: str) -> Any:
    """The object at `module:name`, or the module. Raises `BadFeature` if it is missing, or something that its module
    imports.
    """
    module, _, name = where.partition(":")
    try:
        found = import_module(module)
        return getattr(found, name) if name else found
    except (ImportError, AttributeError) as missing:
        raise BadFeature(f"Onsale {VERSION} cannot load the feature at {where}: {missing}") from missing


def _ours() -> Iterator[Feature]:
    spec = find_spec(OWN)
    for module in iter_modules(spec.submodule_search_locations) if spec else ():
        if module.ispkg:
            feature: Feature = load(f"{OWN}.{module.name}.feature:FEATURE")
            yield feature
