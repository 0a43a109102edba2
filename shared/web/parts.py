"""What a feature adds to a service: routes, settings, and an object that lives as long as the process.

The service does not know of it. `create_service` takes the routes; when the service's own lifespan has opened its
state, each part opens what it needs from that, and its handlers find it by its class.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from fastapi import APIRouter, FastAPI, Request
from pydantic_settings import BaseSettings
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.types import ASGIApp

from shared.concurrency.background import Loops
from shared.contracts.admin.checks import Check
from shared.features import BadFeature, installed, load
from shared.redis.client import Redis
from shared.routes import Service
from shared.web.answers import Answer
from shared.web.fast_routes import FastRoute
from shared.web.request import Request as WebRequest

if TYPE_CHECKING:
    from shared.web.internal_api import InternalApi

Opened = TypeVar("Opened")
Settings = TypeVar("Settings", bound=BaseSettings)
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
Open = Callable[[Any, Loops], AbstractAsyncContextManager[object]]


class Databases(NamedTuple):
    """The open connections of a process, at `app.state.databases`; gateway and notifier keep no tables."""

    redis: Redis
    postgres: AsyncEngine | None = None


class PostedForms(Protocol):
    """What pages without scripts post, answered by what the API answers to the request that a form stands for."""

    @property
    def paths(self) -> Sequence[str]:
        """Regular expressions of the paths to which forms are posted."""

    def answering(self, request: WebRequest, api: Callable[[WebRequest], Awaitable[Answer]]) -> ASGIApp | None:
        """Answers a form; None if no form has this path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A feature's part of one service.

    `open` gets the service's state and the part's background loops, and yields the part's own object: once a process,
    before the first request and before the service works by itself; what it raises stops the start. Loops begin when
    all parts are open; one that fails is logged and repeated. `internal_api` has more operations for other services.
    `settings` has fields that join those of the service, under the service's prefix; each has a default. `checks` gets
    the settings, and says what `onsale doctor` prints.
    """

    routers: Sequence[APIRouter] = ()
    fast_routes: Sequence[FastRoute] = ()
    internal_api: "InternalApi | None" = None
    forms: PostedForms | None = None
    settings: type[BaseSettings] | None = None
    open: Open | None = None
    checks: Callable[[Any], Sequence[Check]] | None = None


@cache
def _parts(service: Service) -> dict[str, Part]:
    return {feature.name: load(feature.parts[service]) for feature in installed() if service in feature.parts}


def parts_of(service: Service, off: Collection[str] = ()) -> tuple[Part, ...]:
    """The parts of the installed features that are not switched off. Raises `BadFeature` if one in `off` is unknown."""
    names = {feature.name for feature in installed()}
    if unknown := sorted({*off} - names):
        raise BadFeature(
            f"ONSALE_FEATURES_OFF names no installed feature: {', '.join(unknown)}; installed are: "
            f"{', '.join(sorted(names)) or 'none'}"
        )
    return tuple(part for name, part in _parts(service).items() if name not in off)


@cache
def with_settings_of_parts(settings: type[Settings], service: Service) -> type[Settings]:
    """The class of a service's settings with the fields of every installed feature."""
    more = [part.settings for part in parts_of(service) if part.settings is not None]
    bases = (*more, settings)  # the last one's configuration holds, so its prefix does
    return type(settings.__name__, bases, {"__module__": settings.__module__}) if more else settings


def with_parts(lifespan: Lifespan, service: Service, parts: Sequence[Part]) -> Lifespan:
    """The same lifespan with the parts open inside it."""

    @asynccontextmanager
    async def opening(app: FastAPI) -> AsyncIterator[None]:
        async with (
            lifespan(app),
            Loops(service, held=True) as loops,
            open_parts(app.state.deps, parts, loops) as app.state.parts,
        ):
            loops.start()
            async with app.state.running():
                yield

    return opening


@asynccontextmanager
async def open_parts(state: object, parts: Sequence[Part], loops: Loops) -> AsyncIterator[dict[type, object]]:
    """What the parts open over this state of a service, by class."""
    async with AsyncExitStack() as stack:
        found = [await stack.enter_async_context(part.open(state, loops)) for part in parts if part.open is not None]
        yield {type(each): each for each in found}


def opened(kind: type[Opened]) -> Callable[[Request], Opened]:
    """A dependency of the framework: the object of this class that a part opened."""

    def of(request: Request) -> Opened:
        found: Opened = request.app.state.parts[kind]
        return found

    return of
