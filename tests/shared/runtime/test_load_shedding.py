"""A process with more to do than it does in a moment refuses newcomers; reads and writes are counted apart."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from shared.errors.problems import Overloaded
from shared.process.load_meter import LoadMeter
from shared.process.settings import ServiceSettings
from shared.web.app import create_service, internal, public
from shared.web.load_shedding import (
    CROWD_MAX,
    LEAST_MAX,
    MEASURED_S,
    QUIET,
    READ_WITHIN_S,
    WRITE_WITHIN_S,
    Load,
    LoadShedder,
)


class Process:
    """Requests come and are answered, and the time goes on, as the test says."""

    def __init__(self, within_s: float = READ_WITHIN_S) -> None:
        self.now_s = 0.0
        self.shedder = LoadShedder(within_s, lambda: self.now_s)

    def come(self, count: int) -> int:
        """How many of so many requests are let in."""
        return sum(self._comes() for _ in range(count))

    def _comes(self) -> bool:
        try:
            self.shedder.begin()
        except Overloaded:
            return False
        return True

    def answer(self, count: int) -> None:
        for _ in range(count):
            self.shedder.end()

    def pass_seconds(self, seconds: int, *, answered: int) -> None:
        """Before each second is over so many are answered, one after the other, and as many come."""
        for _ in range(seconds):
            for _ in range(answered):
                self.answer(1)
                self.come(1)
            self.now_s += 1


@pytest.fixture
def process() -> Process:
    return Process()


def test_a_crowd_that_comes_at_once_is_let_in(process: Process) -> None:
    assert process.come(CROWD_MAX + 10) == CROWD_MAX


def test_as_many_wait_as_are_answered_in_a_moment(process: Process) -> None:
    process.come(400)
    process.pass_seconds(4, answered=300)
    assert 45 <= process.come(600) <= 55, "a second and a half of 300 a second are 450"
    assert process.come(10) == 0
    process.answer(1)
    assert process.come(10) == 1
    writes = Process(WRITE_WITHIN_S)
    writes.come(400)
    writes.pass_seconds(4, answered=300)
    assert 495 <= writes.come(999) <= 505, "three seconds are 900"


def test_work_in_the_background_counts_and_is_never_refused_but_not_while_it_waits_for_somebody_else(
    process: Process,
) -> None:
    with ExitStack() as orders, ExitStack() as calls:
        for _ in range(400):
            orders.enter_context(process.shedder.work())
        process.now_s += MEASURED_S
        assert process.come(10) == 0
        for _ in range(250):
            calls.enter_context(process.shedder.outside())
        assert process.come(300) == LEAST_MAX - 150, "of 400 orders a provider has 250"
        calls.close()
        assert process.come(10) == 0
    process.now_s += MEASURED_S
    assert process.come(10) == 10, "400 are done in two seconds"


def test_work_that_waits_counts_but_not_the_share_that_waits_for_somebody_else(process: Process) -> None:
    with ExitStack() as orders, ExitStack() as calls:
        for _ in range(200):
            orders.enter_context(process.shedder.work())
        process.now_s += MEASURED_S
        process.shedder.check()
        process.shedder.wait(100)
        with pytest.raises(Overloaded):
            process.shedder.check()
        for _ in range(180):
            calls.enter_context(process.shedder.outside())
        process.shedder.wait(2000)
        process.shedder.check()  # a provider has nine tenths of what is in work, so as much of the rest waits for it
        process.shedder.wait(2500)
        with pytest.raises(Overloaded):
            process.shedder.check()


@pytest.mark.parametrize(("accepted", "let_in"), [(True, 300 - LEAST_MAX), (False, 0)])
def test_only_work_that_newcomers_left_says_how_much_can_be_done(process: Process, accepted: bool, let_in: int) -> None:
    with ExitStack() as waits:
        for _ in range(LEAST_MAX):
            waits.enter_context(process.shedder.work())
        process.shedder.check()
        for _ in range(400):
            with process.shedder.work(accepted=accepted):
                pass
        process.now_s += MEASURED_S
        assert process.come(100) == let_in


def test_who_writes_is_refused_while_too_much_is_left_to_be_done_in_the_background() -> None:
    """Answers to these count for nothing then: they are given much sooner than their work is done."""
    load = Load(*(LoadShedder(WRITE_WITHIN_S) for _ in Load._fields))
    with ExitStack() as orders:
        for _ in range(LEAST_MAX - 1):
            orders.enter_context(load.background.work())
        load.background._since_s -= MEASURED_S
        writing = load.begin("POST", "/orders")
        for _ in range(1000):
            load.begin("GET", "/orders/1").end()
        load.begin("POST", "/orders/quote").end()
        with pytest.raises(Overloaded):
            load.begin("POST", "/orders")  # what is being accepted now will be in the background as well
        writing.end()
        load.begin("POST", "/orders").end()


def test_a_slow_process_lets_some_in(process: Process) -> None:
    process.come(LEAST_MAX)
    process.now_s += MEASURED_S
    assert process.come(5) == 0
    process.answer(30)
    assert process.come(50) == 30


def test_a_process_with_little_to_do_lets_a_crowd_in_again(process: Process) -> None:
    process.come(400)
    process.pass_seconds(4, answered=100)
    assert process.come(10) == 0
    process.answer(200)
    assert process.come(CROWD_MAX) > CROWD_MAX - QUIET


def test_the_more_are_refused_the_later_they_may_come_again(process: Process) -> None:
    def refused() -> int | None:
        process.come(20)
        with pytest.raises(Overloaded) as caught:
            process.shedder.begin()
        return caught.value.retry_after_s

    process.come(280)
    process.pass_seconds(4, answered=200)
    assert refused() == 1
    process.come(1400)
    process.pass_seconds(2, answered=200)
    assert refused() == 4
    process.come(9999)
    process.pass_seconds(2, answered=200)
    assert refused() == 10


async def test_a_refusal_is_a_problem_that_says_when_to_come_again_and_the_line_learns_of_it(
    crowded: "Crowded",
) -> None:
    refused = await crowded.client.get("/orders/3")
    others = [
        *[await crowded.client.post(path) for path in ("/admin/orders/4", "/webhooks/sandbox")],
        *[await crowded.client.get(path) for path in ("/livez", "/readyz", "/version")],
        await crowded.inside.get("/metrics"),
    ]
    crowded.go_on.set()
    answers = await asyncio.gather(*crowded.waiting)
    again = await crowded.client.get("/orders/3")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json()["type"] == "/problems/overloaded"
    assert refused.headers["x-request-id"] == refused.json()["request_id"]
    assert {answer.status_code for answer in (*answers, *others, again)} == {200}
    assert crowded.meter.frame().refused == 1


async def test_who_looks_does_not_keep_out_who_pays_and_a_price_is_looked_at(crowded: "Crowded") -> None:
    assert (await crowded.client.post("/orders/quote")).status_code == 503
    assert (await crowded.client.post("/orders")).status_code == 200


def test_a_process_with_nothing_in_the_background_knows_only_its_requests() -> None:
    load = Load(*(LoadShedder(WRITE_WITHIN_S) for _ in Load._fields))
    writing = [load.begin("POST", "/events/1/reservations") for _ in range(CROWD_MAX - 1)]
    load.background._since_s -= MEASURED_S
    load.begin("POST", "/events/1/reservations")
    assert len(writing) > LEAST_MAX


@dataclass(frozen=True)
class Crowded:
    """A process of which two requests that look wait for `go_on`; no third one may."""

    client: httpx.AsyncClient
    inside: httpx.AsyncClient
    meter: LoadMeter
    waiting: list[asyncio.Task[httpx.Response]]
    go_on: asyncio.Event


@pytest.fixture
async def crowded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crowded]:
    monkeypatch.setattr("shared.web.load_shedding.LEAST_MAX", 2)
    monkeypatch.setattr("shared.web.load_shedding.CROWD_MAX", 2)
    router, go_on, meter = APIRouter(), asyncio.Event(), LoadMeter("orders")

    @router.get("/orders/{reference}")
    async def wait(reference: str) -> str:
        await go_on.wait()
        return reference

    @router.post("/orders")
    @router.post("/orders/quote")
    @router.post("/admin/orders/4")
    @router.post("/webhooks/sandbox")
    async def work() -> str:
        return "done"

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield

    app = create_service(
        "orders", ServiceSettings(log_requests=False), title="orders", lifespan=lifespan, routers=[router], meter=meter
    )
    clients = [
        httpx.AsyncClient(transport=httpx.ASGITransport(listener(app)), base_url="http://orders")
        for listener in (public, internal)
    ]
    async with clients[0] as client, clients[1] as inside:
        waiting = [asyncio.create_task(client.get(f"/orders/{n}")) for n in range(2)]
        await asyncio.sleep(0.05)
        yield Crowded(client, inside, meter, waiting, go_on)
        go_on.set()
        await asyncio.gather(*waiting)
