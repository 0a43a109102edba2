"""A service without anything of its own, for tests of what every service does with requests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI

from shared.process.settings import ServiceSettings
from shared.web.app import create_service, public


@asynccontextmanager
async def _nothing(_: FastAPI) -> AsyncIterator[None]:
    yield


def bare_service() -> FastAPI:
    """The app, to which a test adds routes."""
    return create_service("queue", ServiceSettings(log_requests=False), title="test", lifespan=_nothing)


def fan_of_service(app: FastAPI) -> httpx.AsyncClient:
    """Calls its public listener."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url="http://test")
