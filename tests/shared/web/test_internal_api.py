"""Calls between services of one process: what over HTTP happens between two, happens here as well."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import REGISTRY
from pydantic import BaseModel

from shared.contracts.fields import ServiceMessage
from shared.errors import problems
from shared.process.load import Load
from shared.process.settings import ServiceSettings
from shared.rpc import ServiceClient, answered_here
from shared.runtime.logging import request_fields
from shared.security.tokens import development_keys
from shared.web.app import create_service, internal
from shared.web.internal_api import InternalApi

SETTINGS = ServiceSettings(log_requests=False)


class Asked(ServiceMessage):
    kind: str


class Answered(ServiceMessage):
    kind: str
    request_id: str = ""


class Stock:
    """The state of the service. Calls wait for `may_answer`; `ended` counts those that were answered."""

    def __init__(self) -> None:
        self.may_answer, self.begun, self.ended = asyncio.Event(), 0, 0
        self.may_answer.set()


SOLD_OUT = problems.SoldOut("None left.", available=(0, 1))  # one for all members of a batch
RAISED: dict[str, Callable[[], Exception]] = {
    "sold-out": lambda: SOLD_OUT,
    "overloaded": lambda: problems.Overloaded(retry_after_s=7),
    "away": lambda: ConnectionRefusedError("as a driver that cannot connect"),
    "bug": lambda: KeyError("the secret of a bug"),
}


def api() -> InternalApi:
    found = InternalApi()

    @found.operation("/ask", Asked)
    async def ask(state: Stock, question: Asked) -> Answered:
        state.begun += 1
        await state.may_answer.wait()
        state.ended += 1
        if question.kind in RAISED:
            failed = RAISED[question.kind]()
            raise failed
        return Answered(kind=question.kind, request_id=request_fields.get().get("request_id", ""))

    @found.operation("/heartbeats", Asked)
    async def heartbeats(state: Stock, question: Asked) -> Answered:
        return Answered(kind=question.kind)

    return found


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield


@pytest.fixture
def load() -> Load:
    return Load("inventory")


@pytest.fixture
def app(load: Load) -> FastAPI:
    created = create_service(
        "inventory", SETTINGS, title="test", lifespan=lifespan, internal_api=api(), load=load
    )  # fmt: skip
    created.state.deps = Stock()
    return created


@pytest.fixture
async def over_http(app: FastAPI) -> AsyncIterator[ServiceClient]:
    transport = httpx.ASGITransport(app=internal(app), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport) as http:
        yield ServiceClient(http, "http://inventory", SETTINGS.service_keys, name="inventory")


@pytest.fixture
def here(app: FastAPI) -> Iterator[ServiceClient]:
    """A client that finds nobody by HTTP."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    http = httpx.AsyncClient(transport=httpx.MockTransport(refuse))
    with answered_here("inventory", app.state.own_process):
        yield ServiceClient(http, "http://nowhere", development_keys("other"), name="inventory")


async def asked(service: ServiceClient, kind: str, *, deadline_s: float = 2.0) -> Answered:
    return await service.call("/ask", Asked(kind=kind), Answered, deadline_s=deadline_s)


async def test_a_service_of_this_process_is_called_without_http(here: ServiceClient, app: FastAPI) -> None:
    assert (await asked(here, "stock")).kind == "stock"
    assert app.state.deps.ended == 1


async def test_a_service_that_has_ended_is_called_by_http_again(over_http: ServiceClient) -> None:
    async def ended(path: str, question: BaseModel) -> BaseModel:
        raise AssertionError(path)

    with answered_here("inventory", ended):
        pass
    assert (await asked(over_http, "stock")).kind == "stock"


@pytest.mark.parametrize("kind", RAISED)
async def test_a_problem_is_raised_as_it_is_over_http(
    kind: str, app: FastAPI, over_http: ServiceClient, load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of a bug or an outage included."""
    raised, logged, counted, refused = [], [], [], []
    for own in (False, True):
        caplog.clear()
        before, refused_before = failures(), load._slots[-1].refused
        called = "inventory" if own else "nobody"
        with answered_here(called, app.state.own_process), pytest.raises(problems.Problem) as caught:
            await asked(over_http, kind)
        problem = caught.value
        raised.append((type(problem), problem.code, problem.detail, problem.retry_after_s, problem.members))
        logged.append([record.getMessage() for record in caplog.records if record.levelname == "ERROR"])
        counted.append(failures() - before)
        refused.append(load._slots[-1].refused - refused_before)
    assert raised[0] == raised[1]
    assert logged[0] == logged[1]
    assert counted == [kind != "sold-out"] * 2
    assert refused == [kind in ("overloaded", "away")] * 2
    assert "secret" not in str(raised)


def failures() -> float:
    labels = {"service": "inventory", "route": "/internal/ask", "method": "POST"}
    return REGISTRY.get_sample_value("onsale_http_failures_total", labels) or 0.0


async def test_one_problem_for_several_callers_is_several_objects(here: ServiceClient) -> None:
    found = await asyncio.gather(*(asked(here, "sold-out") for _ in range(2)), return_exceptions=True)
    assert found[0] is not found[1], "each caller raises its own, with its own traceback"


async def test_a_call_that_takes_too_long_is_unavailable_and_ends_on_its_own(here: ServiceClient, app: FastAPI) -> None:
    stock: Stock = app.state.deps
    stock.may_answer.clear()
    with pytest.raises(problems.Unavailable, match="in time"):
        await asked(here, "stock", deadline_s=0.05)
    assert (stock.begun, stock.ended) == (1, 0)
    stock.may_answer.set()
    await app.state.own_process.finish(5)
    assert stock.ended == 1, "as on a server whose client has closed the connection"


async def test_a_call_goes_on_though_its_caller_was_cancelled(here: ServiceClient, app: FastAPI) -> None:
    stock: Stock = app.state.deps
    stock.may_answer.clear()
    caller = asyncio.create_task(asked(here, "stock"))
    await asyncio.sleep(0.01)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert caller.cancelled()
    stock.may_answer.set()
    await app.state.own_process.finish(5)
    assert stock.ended == 1


async def test_no_more_calls_run_at_once_than_over_connections(here: ServiceClient, app: FastAPI) -> None:
    stock: Stock = app.state.deps
    stock.may_answer.clear()
    callers = [asyncio.create_task(asked(here, "stock")) for _ in range(50)]
    await asyncio.sleep(0.05)
    assert stock.begun == 32
    stock.may_answer.set()
    assert len(await asyncio.gather(*callers)) == 50


async def test_a_call_is_measured_and_logged_for_the_request_that_caused_it(here: ServiceClient) -> None:
    labels = {"service": "inventory", "route": "/internal/ask", "method": "POST", "status": "200"}
    before = REGISTRY.get_sample_value("onsale_http_request_seconds_count", labels) or 0.0
    token = request_fields.set({"request_id": "abcdefgh-1"})
    try:
        assert (await asked(here, "stock")).request_id == "abcdefgh-1"
    finally:
        request_fields.reset(token)
    assert REGISTRY.get_sample_value("onsale_http_request_seconds_count", labels) == before + 1
