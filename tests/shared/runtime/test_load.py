"""The load of a process: it is measured for the line, and newcomers are refused when there is more to do than is done
in a moment; who looks and who buys are counted apart.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from shared.concurrency.background import Quiet
from shared.contracts.frames import LoadFrame
from shared.errors.problems import Overloaded
from shared.process import load as load_module
from shared.process.load import (
    AVERAGED,
    CROWD_MAX,
    KEPT_MAX,
    LEAST_MAX,
    MEASURED_S,
    NEWCOMERS_WITHIN_S,
    QUIET,
    QUIET_S,
    SLOTS,
    WITHIN_S,
    Load,
    PurchaseWork,
    Work,
)
from shared.process.settings import ServiceSettings
from shared.redis.client import Redis
from shared.web.app import create_service, internal, public


class Process:
    """Requests come and are answered, and the time goes on, as the test says."""

    def __init__(self, within_s: float = NEWCOMERS_WITHIN_S, kind: type[Work] = Work) -> None:
        self.now_s, self.within_s = 0.0, within_s
        self.work = kind(lambda: self.now_s)

    def come(self, count: int) -> int:
        """How many of so many requests are let in."""
        return sum(self._comes() for _ in range(count))

    def _comes(self) -> bool:
        try:
            self.work.begin(within_s=self.within_s)
        except Overloaded:
            return False
        return True

    def answer(self, count: int) -> None:
        for _ in range(count):
            self.work.end()

    def pass_seconds(self, seconds: int, *, answered: int) -> None:
        """Before each second is over so many are answered, one after the other, and as many come."""
        for _ in range(seconds):
            for _ in range(answered):
                self.answer(1)
                self.come(1)
            self.now_s += 1


class Background:
    """Orders in the background of a process; `waiting` find no worker, `held_up` of all were held up by a provider."""

    def __init__(self) -> None:
        self.process = Process(WITHIN_S, PurchaseWork)
        assert isinstance(self.process.work, PurchaseWork)
        self.purchases = self.process.work
        self.waiting = self.held_up = 0
        self.purchases.follow(lambda: (self.waiting, self.held_up))

    def begin(self, orders: ExitStack, count: int) -> None:
        for _ in range(count):
            orders.enter_context(self.purchases.work())


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.fixture
def background() -> Background:
    return Background()


def test_a_crowd_that_comes_at_once_is_let_in(process: Process) -> None:
    assert process.come(CROWD_MAX + 10) == CROWD_MAX


def test_as_many_wait_as_are_answered_in_a_moment(process: Process) -> None:
    process.come(400)
    process.pass_seconds(4, answered=300)
    assert 45 <= process.come(600) <= 55, "a second and a half of 300 a second are 450"
    assert process.come(10) == 0
    process.answer(1)
    assert process.come(10) == 1
    writes = Process(WITHIN_S)
    writes.come(400)
    writes.pass_seconds(4, answered=300)
    assert 495 <= writes.come(999) <= 505, "three seconds are 900"


def test_work_in_the_background_counts_and_is_never_refused_but_not_while_it_waits_for_somebody_else(
    background: Background,
) -> None:
    process, purchases = background.process, background.purchases
    with ExitStack() as orders, ExitStack() as calls:
        background.begin(orders, 400)
        process.now_s += MEASURED_S
        assert process.come(10) == 0
        for _ in range(250):
            calls.enter_context(purchases.outside())
        assert process.come(300) == LEAST_MAX - 150, "of 400 orders a provider has 250"
        calls.close()
        assert process.come(10) == 0
    assert purchases.done == 400


def test_work_that_waits_counts_but_not_the_share_that_waits_for_somebody_else(background: Background) -> None:
    process, purchases = background.process, background.purchases
    with ExitStack() as orders, ExitStack() as calls:
        background.begin(orders, 200)
        process.now_s += MEASURED_S
        assert process.come(1) == 1
        background.waiting = 100
        assert process.come(1) == 0
        for _ in range(180):
            calls.enter_context(purchases.outside())
        background.waiting = 2000
        assert process.come(1) == 1, "a provider has nine tenths of what is in work, and so of the rest"
        background.waiting = 2500
        assert process.come(1) == 0


def test_nobody_is_refused_for_what_a_provider_has_held_up(background: Background) -> None:
    """Fans who were let in before it was away come to pay when it is back and has everything to do."""
    process, purchases = background.process, background.purchases
    with ExitStack() as orders:
        background.begin(orders, 400)
        background.waiting, background.held_up = 3000, 3400
        process.now_s += MEASURED_S
        assert process.come(200) == 200
        assert purchases.to_do() == 3600, "but all of it is told to the line"
        background.held_up = 0
        process.now_s += MEASURED_S
        assert process.come(1) == 0


@pytest.mark.parametrize(("accepted", "let_in"), [(True, 300 - LEAST_MAX), (False, 0)])
def test_only_work_that_newcomers_left_says_how_much_can_be_done(
    background: Background, accepted: bool, let_in: int
) -> None:
    process, purchases = background.process, background.purchases
    with ExitStack() as waits:
        background.begin(waits, LEAST_MAX - 1)
        process.come(1)
        for _ in range(200):
            with purchases.work(accepted=accepted):
                pass
        process.now_s += MEASURED_S
        assert process.come(100) == let_in


def test_who_buys_is_refused_while_more_is_accepted_than_completed(background: Background) -> None:
    """Answers to these count for nothing then: they are given much sooner than their work is done."""
    process = background.process
    with ExitStack() as orders:
        background.begin(orders, LEAST_MAX - 1)
        assert process.come(1) == 1
        process.now_s += MEASURED_S
        assert process.come(1) == 0
        process.answer(1)
        assert process.come(1) == 1, "what was being accepted is not in the background"
        assert background.purchases.done == 0


def test_a_request_that_waits_for_its_order_is_counted_once(background: Background) -> None:
    process, purchases = background.process, background.purchases
    process.come(1)
    with purchases.work(), purchases.left():
        assert purchases.to_do() == 1
    assert purchases.to_do() == 1
    process.answer(1)
    assert (purchases.to_do(), purchases.done) == (0, 1)


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
            process.work.begin(within_s=NEWCOMERS_WITHIN_S)
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
    assert crowded.load.frame().refused == 1


async def test_who_looks_does_not_keep_out_who_pays_and_a_price_is_looked_at(crowded: "Crowded") -> None:
    assert (await crowded.client.post("/orders/quote")).status_code == 503
    assert (await crowded.client.post("/orders")).status_code == 200


def test_who_has_a_credential_is_refused_after_those_without(timed: "Timed") -> None:
    """Seats that a fan who was called looks at, and a page that anybody looks at."""

    def look(count: int, *names: bytes) -> int:
        come = 0
        with suppress(Overloaded):
            for come in range(count):  # noqa: B007
                timed.load.before({**scope(), "headers": [(name, b"x") for name in names]})
        return come

    look(QUIET + 2)
    timed.load.looks._per_s = 300.0
    assert timed.load.looks.in_flight + look(999) == NEWCOMERS_WITHIN_S * 300
    assert look(1) == look(1, b"accept") == 0
    assert timed.load.looks.in_flight + look(999, b"authorization") == WITHIN_S * 300
    assert look(1, b"cookie") == 0


def test_a_process_with_nothing_in_the_background_knows_only_its_requests() -> None:
    process = Process(WITHIN_S, PurchaseWork)
    process.come(CROWD_MAX - 1)
    process.now_s += MEASURED_S / 2
    assert process.come(2) == 1
    process.answer(10)
    assert process.work.done == 10


# -- what the line is told ---------------------------------------------------------------------------------------------


class Timed:
    """A load on a clock of the test's."""

    def __init__(self, service: str = "orders") -> None:
        self.now_s = 100.0
        self.load = Load(service, lambda: self.now_s)

    def write(self, seconds: float, *, status: int = 200, path: str = "/orders") -> None:
        number = self.load.before(scope("POST", path))
        self.now_s += seconds
        self.load.after(number, status)


def scope(method: str = "GET", path: str = "/events") -> dict[str, Any]:
    return {"method": method, "path": path, "headers": []}


@pytest.fixture
def timed() -> Timed:
    return Timed()


def test_a_frame_says_how_much_is_in_work_on_average_and_how_much_is_done_a_second(timed: Timed) -> None:
    timed.load.frame()
    for _ in range(10):
        timed.write(0.1)
    timed.now_s += 1.0
    frame = timed.load.frame()
    assert (frame.work, frame.done_per_s) == (0.5, 5.0), "one at a time for one of two seconds"
    timed.load.before(scope("POST", "/orders"))
    timed.now_s += 2.0
    frame = timed.load.frame()
    assert (frame.work, frame.done_per_s) == (1.0, 2.5), "of all seconds that have passed"
    assert frame.average_work == pytest.approx(0.75, abs=0.06)
    for _ in range(AVERAGED):
        timed.now_s += 1.0
        frame = timed.load.frame()
    assert (frame.average_work, frame.done_per_s) == (1.0, 0.0)


def test_only_writes_of_fans_are_measured_but_refusals_of_all_requests(timed: Timed) -> None:
    for method, path in (("GET", "/orders/x"), ("POST", "/internal/y"), ("POST", "/admin/z"), ("POST", "/webhooks/a")):
        number = timed.load.before(scope(method, path))
        timed.now_s += 9.0
        timed.load.after(number, 503)
    timed.write(0.2)
    frame = timed.load.frame()
    assert (timed.load.purchases.done, frame.refused, frame.p95_ms) == (1, 4, 200)


def test_one_slow_write_does_not_move_the_p95_and_old_writes_are_forgotten(timed: Timed) -> None:
    for seconds in [0.01] * 9 + [5.0]:
        timed.write(seconds)
    assert timed.load.frame().p95_ms == 10
    timed.write(5.0)
    assert timed.load.frame().p95_ms == 5000
    for _ in range(SLOTS):
        timed.load.frame()
    assert timed.load.frame().p95_ms == 0


class Published(list[LoadFrame]):
    """The frames that were published."""

    async def publish(self, _: str, frame: str) -> None:
        self.append(LoadFrame.model_validate_json(frame))


async def test_a_frame_without_news_says_when_the_next_one_comes_late_and_a_purchase_wakes_the_loop(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = list[str]()
    monkeypatch.setattr(load_module, "wake", woken.append)
    published = Published()
    redis = cast(Redis, published)
    outcomes = [await timed.load.publish(redis), await timed.load.publish(redis)]
    assert (outcomes, woken) == ([None, Quiet(QUIET_S)], []), "the first one is news"
    timed.write(0.1)
    timed.write(0.1)
    outcomes.append(await timed.load.publish(redis))
    assert (outcomes[-1], woken) == (None, ["orders"])
    assert [frame.rests_ms for frame in published] == [0, 1000 * QUIET_S, 0]
    counts = iter([{"streams_open": 0}, {"streams_open": 0}, {"streams_open": 1}])
    notifier = Load("notifier")
    outcomes = [await notifier.publish(redis, lambda: next(counts)) for _ in range(3)]
    assert outcomes == [None, Quiet(QUIET_S), None]
    assert [frame.streams_open for frame in published[3:]] == [0, 0, 1]


@pytest.mark.parametrize(("age_s", "p95_ms"), [(0.1, 0), (3.0, 3000)])
def test_an_unanswered_request_counts_with_its_age_once_it_is_old(timed: Timed, age_s: float, p95_ms: float) -> None:
    for _ in range(6):
        timed.load.before(scope("POST", "/orders"))
    timed.now_s += age_s
    assert timed.load.frame().p95_ms == p95_ms


def test_many_writes_are_kept_as_a_sample(timed: Timed) -> None:
    for n in range(5000):
        timed.write(1.0 if n % 10 == 0 else 0.01)
    assert len(timed.load._slots[-1].seconds) == KEPT_MAX
    assert (timed.load.purchases.done, timed.load._open) == (5000, {})


@dataclass(frozen=True)
class Crowded:
    """A process of which two requests that look wait for `go_on`; no third one may."""

    client: httpx.AsyncClient
    inside: httpx.AsyncClient
    load: Load
    waiting: list[asyncio.Task[httpx.Response]]
    go_on: asyncio.Event


@pytest.fixture
async def crowded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crowded]:
    monkeypatch.setattr("shared.process.load.LEAST_MAX", 2)
    monkeypatch.setattr("shared.process.load.CROWD_MAX", 2)
    router, go_on, load = APIRouter(), asyncio.Event(), Load("orders")

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
        "orders", ServiceSettings(log_requests=False), title="orders", lifespan=lifespan, routers=[router], load=load
    )
    clients = [
        httpx.AsyncClient(transport=httpx.ASGITransport(listener(app)), base_url="http://orders")
        for listener in (public, internal)
    ]
    async with clients[0] as client, clients[1] as inside:
        waiting = [asyncio.create_task(client.get(f"/orders/{n}")) for n in range(2)]
        await asyncio.sleep(0.05)
        yield Crowded(client, inside, load, waiting, go_on)
        go_on.set()
        await asyncio.gather(*waiting)
