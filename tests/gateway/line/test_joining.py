"""Joining the line: a fan who joins several times, over any number of connections, has one place, in the lane that
their claims choose; the public line lists the lanes.
"""

import asyncio
import uuid
from contextlib import asynccontextmanager

import pytest
from pydantic import ValidationError

from services.gateway.state import State
from services.gateway.tuning import Tuning
from shared.contracts.frames import LineFrame, StockFrame
from shared.contracts.queue import JoinBatch, JoinRequest
from shared.contracts.room_options import Lane, RoomOptions, lane_of
from shared.errors.problems import RoomClosed
from shared.runtime.clock import now_ms
from shared.security.tokens import QueueToken
from shared.web import before_join
from tests.gateway.conftest import gateway_client
from tests.gateway.frames import lanes, line_frame, new_frame, snapshot
from tests.support.wait import wait_until

PATH = "/events/show/queue"


async def test_a_new_fan_gets_a_place_a_token_and_a_cookie(fan, queue):
    await queue.open()
    answer = await fan.post(PATH)
    assert answer.status_code == 201
    body = answer.json()
    token = body.pop("queue_token")
    assert body == {"join_seq": 1, "lane": 0, "position_in_queue": 1, "estimated_wait_time": 20,
                    "estimated_wait_low": 6, "estimated_wait_high": 69, "status": "waiting",
                    "epoch": 1, "poll_after_ms": 9969}  # fmt: skip
    assert answer.headers["cache-control"] == "no-store"
    name, *flags = answer.headers["set-cookie"].split("; ")
    assert name == f"onsale_queue_show={token}"
    assert flags == ["Path=/", "Max-Age=604800", "HttpOnly", "SameSite=Lax"]


async def test_a_fan_who_joins_again_has_the_same_place(fan, browser, queue):
    await queue.open()
    first = await fan.post(PATH, json={})
    by_cookie = await fan.post(PATH)
    by_bearer = await browser(authorization=f"Bearer {first.json()['queue_token']}").post(PATH)
    assert (first.status_code, by_cookie.status_code, by_bearer.status_code) == (201, 200, 200)
    assert {answer.json()["join_seq"] for answer in (first, by_cookie, by_bearer)} == {1}
    assert len(await queue.holders()) == 1


async def test_twenty_joins_with_one_idempotency_key_give_one_place(browser, queue):
    await queue.open()
    key = {"idempotency-key": str(uuid.uuid4())}
    answers = await asyncio.gather(*(browser().post(PATH, headers=key) for _ in range(20)))
    assert {answer.json()["join_seq"] for answer in answers} == {1}
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    for batch in queue.received("/joins", JoinBatch):
        holders = [join.holder for join in batch.joins]
        assert len(set(holders)) == len(holders), "a fan is in a batch only once"
        assert all(join.may_be_known for join in batch.joins)


async def test_fans_who_join_at_the_same_time_share_a_batch(browser, queue):
    await queue.open()
    queue.may_answer.clear()
    joining = [asyncio.create_task(browser().post(PATH)) for _ in range(40)]
    await asyncio.sleep(0)
    queue.may_answer.set()
    answers = await asyncio.gather(*joining)
    assert sorted(answer.json()["join_seq"] for answer in answers) == list(range(1, 41))
    assert queue.calls["/joins"] <= 4
    assert queue.calls["/rooms/frame"] == 1, "the first frame of an event is requested once for all fans"


@pytest.mark.parametrize(("fault", "times", "status"), [("refusals", 1, 201), ("lost_answers", 2, 200)])
async def test_a_batch_without_an_answer_is_sent_again_with_its_id(fan, queue, fault: str, times: int, status: int):
    """If it was done and its answer lost, the place is already known."""
    await queue.open()
    await fan.get(PATH)
    setattr(queue, fault, times)
    answer = await fan.post(PATH)
    assert (answer.status_code, answer.json()["join_seq"]) == (status, 1)
    first, *again = queue.received("/joins", JoinBatch)
    assert again == [first] * times
    assert len(await queue.holders()) == 1


async def test_a_failed_batch_fails_only_its_own_joins(fan, browser, queue):
    await queue.open()
    await queue.open("other")
    await fan.get(PATH)
    await fan.get("/events/other/queue")
    queue.refusals = 2
    failed = await fan.post(PATH)
    assert failed.status_code == 503
    assert failed.headers["retry-after"] == "1"
    assert (await browser().post("/events/other/queue")).status_code == 201
    assert (await browser().post(PATH)).json()["join_seq"] == 1


async def full(queue, inventory) -> None:
    await queue.join("first")
    await queue.configure(max_line=1)


async def closed(queue, inventory) -> None:
    await queue.transition("close")


async def sold_out(queue, inventory) -> None:
    inventory.stock = StockFrame(event_id="show", epoch=1, version=1, ready=True, at_ms=now_ms(), sections=[])
    queue.state.gatekeeper.stock_cache.on_frame(inventory.stock.model_dump_json().encode())
    await queue.configure(stock_coupling=True)


@pytest.mark.parametrize(
    ("happens", "status", "slug"),
    [(full, 429, "line-full"), (closed, 410, "room-closed"), (sold_out, 410, "sold-out")],
)
async def test_a_refusal_by_the_queue_is_a_problem(fan, queue, inventory, happens, status, slug):
    await queue.open()
    await happens(queue, inventory)
    answer = await fan.post(PATH)
    assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{slug}")
    assert ("retry-after" in answer.headers) == (status == 429)
    assert "set-cookie" not in answer.headers


async def test_a_short_or_malformed_idempotency_key_is_refused(fan, browser, queue):
    await queue.open()
    for key in ("short", "x" * 21, "x" * 129, "with spaces in it, twenty two"):
        refused = await fan.post(PATH, headers={"idempotency-key": key})
        assert (refused.status_code, refused.json()["type"]) == (400, "/problems/idempotency-key-malformed")
    assert not queue.calls["/joins"]
    for key in (str(uuid.uuid4()), uuid.uuid4().hex, "Aa0._:-" * 4):
        assert (await browser().post(PATH, headers={"idempotency-key": key})).status_code == 201
    holders = await queue.holders()
    assert len(set(holders)) == 3
    assert not any("Aa0" in holder for holder in holders), "the key itself is not sent to the queue"
    await queue.open("other")
    await browser().post("/events/other/queue", headers={"idempotency-key": "Aa0._:-" * 4})
    assert (await queue.holders("other"))[0] != holders[-1], "one key names different holders at two events"


async def test_an_unknown_or_malformed_body_is_refused(fan, queue):
    await queue.open()
    for body, status in ((b"[]", 422), (b'{"lane": 1}', 422), (b"{", 400), (b"\x00", 400), (b"x" * 70_000, 413)):
        refused = await fan.post(PATH, content=body)
        assert refused.status_code == status, body[:20]
        assert refused.headers["content-type"] == "application/problem+json"
    assert not queue.calls["/joins"]
    assert "lane" in (await fan.post(PATH, json={"lane": 1})).json()["detail"]


async def test_an_unknown_event_is_looked_up_at_most_once_a_second(fan, queue):
    for _ in range(5):
        answer = await fan.post("/events/nowhere/queue")
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-event")
    assert queue.calls["/rooms/frame"] == 1
    assert (await fan.post("/events/-bad-/queue")).status_code == 404
    assert (await fan.post(f"/events/{'x' * 33}/queue")).status_code == 404
    assert queue.calls["/rooms/frame"] == 1, "a malformed event id is not looked up"


async def test_after_a_reset_a_fan_with_an_old_token_gets_the_last_place_of_the_new_line(fan, browser, queue):
    await queue.open()
    await fan.post(PATH)
    await queue.reset()
    assert (await browser().post(PATH)).json()["join_seq"] == 1
    again = await fan.post(PATH)
    assert (again.status_code, again.json()["join_seq"], again.json()["epoch"]) == (201, 2, 2)
    assert (await fan.get(f"{PATH}/status")).json()["join_seq"] == 2


async def test_a_fan_with_a_token_of_a_removed_lane_joins_lane_0(fan, queue, state):
    await queue.open(epoch=2)
    old = state.token_reader.sign(
        QueueToken(event_id="show", epoch=1, lane=7, join_seq=1, holder="holder", issued_at_s=0)
    )
    assert (await fan.post(PATH, headers={"authorization": f"Bearer {old}"})).status_code == 201
    assert [join.lane for join in queue.received("/joins", JoinBatch)[0].joins] == [0]


async def test_an_idempotency_key_gives_each_browser_a_place_of_its_own(browser, queue):
    await queue.open()
    key = {"idempotency-key": str(uuid.uuid4())}
    secrets = []
    for _ in range(2):
        async with browser() as fan:
            page = await fan.get("/e/show")
            assert page.headers["cache-control"] == "private, no-cache", "a shared cache must not keep the secret"
            secrets.append(fan.cookies["onsale_browser"])
            assert {"HttpOnly", "SameSite=Lax"} <= set(page.headers["set-cookie"].split("; "))
            assert "set-cookie" not in (await fan.get("/e/show")).headers, "a browser keeps its secret"
    async with browser() as ann, browser() as bob, browser() as app:
        ann.cookies.set("onsale_browser", secrets[0])
        bob.cookies.set("onsale_browser", secrets[1])
        places = []
        for fan in (app, ann, bob, app, ann, bob):
            places.append((await fan.post(PATH, headers=key)).json()["join_seq"])
            fan.cookies.delete("onsale_queue_show")  # the answer was lost
    assert places == [1, 2, 3, 1, 2, 3]


async def test_joins_beyond_the_limit_of_waiting_ones_are_refused_at_once(queue, settings):
    await queue.open()
    async with gateway_client(settings, Tuning(joins_waiting_max=3)) as fan:
        await fan.get(PATH)
        queue.may_answer.clear()
        first = asyncio.create_task(fan.post(PATH))
        await wait_until(lambda: queue.calls["/joins"] == 1)
        others = [asyncio.create_task(fan.post(PATH)) for _ in range(4)]
        (refused,), waiting = await asyncio.wait(others, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        assert refused.result().json()["type"] == "/problems/overloaded"
        assert refused.result().headers["retry-after"] == "1"
        queue.may_answer.set()
        assert {answer.status_code for answer in await asyncio.gather(first, *waiting)} == {201}


class Hook:
    """What a feature may do about joins: this one wants those with the header `x-hook`, and does what it says."""

    def __init__(self):
        self.are_new, self.is_free = [], asyncio.Event()

    def wants(self, request, frame):
        assert frame.event_id == "show"
        return request.header(b"x-hook") is not None

    @asynccontextmanager
    async def joining(self, attempt):
        does = attempt.request.header(b"x-hook")
        if does == "refuse":
            raise RoomClosed
        if does == "wait":
            await self.is_free.wait()
        attempt.fan = attempt.fan.model_copy(update={"holder": does, "may_be_known": True})
        try:
            yield
        finally:
            self.are_new.append(attempt.is_new)


@pytest.fixture
async def hook(state, queue):
    await queue.open()
    state.before_join[:] = [Hook()]
    return state.before_join[0]


async def test_a_feature_may_say_who_joins_and_learns_whether_they_are_new(browser, queue, hook):
    answers = [await browser().post(PATH, headers={"x-hook": "h" * 24}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert await queue.holders() == ["h" * 24]
    assert hook.are_new == [True, False]


async def test_a_feature_may_refuse_a_join_and_the_queue_is_not_asked(fan, queue, hook):
    refused = await fan.post(PATH, headers={"x-hook": "refuse"})
    assert (refused.status_code, refused.json()["type"]) == (410, "/problems/room-closed")
    assert not queue.calls["/joins"]
    assert (await fan.post(PATH)).status_code == 201, "it does not want this join"
    assert hook.are_new == []


async def test_a_feature_that_takes_too_long_refuses_the_join(fan, queue, hook, monkeypatch):
    monkeypatch.setattr(before_join, "BEFORE_JOIN_S", 0.02)
    asyncio.get_running_loop().call_later(0.5, hook.is_free.set)
    refused = await fan.post(PATH, headers={"x-hook": "wait"})
    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/unavailable")
    assert not queue.calls["/joins"]


GENERAL = {"lane": 0, "name": "General", "weight": 1}
PRESALE = {"lane": 1, "name": "Presale", "weight": 3, "code_required": True}
GOLD = {"lane": 2, "name": "Gold", "weight": 6, "claim": {"name": "tier", "value": "gold"}}
OPTIONS = RoomOptions.model_validate({"lanes": [GENERAL, PRESALE, GOLD]})
LATER = "2030-01-01T00:00:00Z"


def frame(options: RoomOptions = OPTIONS, version: int = 9, **heads: tuple[int, int]) -> LineFrame:
    return line_frame(version=version, lanes=lanes(**heads), options=options.model_dump())


async def test_verified_claims_choose_the_lane_and_the_lane_of_an_old_token_does_not(state: State, browser, queue):
    await queue.open(lanes=[GENERAL, PRESALE, GOLD])
    line = await state.line_cache.line("show")
    await state.join_batcher.join(line, JoinRequest(holder="ann"), {"sub": "u-1", "tier": "gold"})
    await state.join_batcher.join(line, JoinRequest(holder="ben"), {"sub": "u-2", "tier": "silver"})
    assert [join.lane for batch in queue.received("/joins", JoinBatch) for join in batch.joins] == [2, 0]
    token = state.token_reader.sign(
        QueueToken(event_id="show", epoch=1, lane=1, join_seq=7, holder="cyd", issued_at_s=0)
    )
    await browser(authorization=f"Bearer {token}").post(PATH)
    [known] = queue.received("/joins", JoinBatch)[-1].joins
    assert (known.holder, known.lane, known.may_be_known) == ("cyd", 0, True)


def test_claims_choose_the_lane_with_the_largest_weight_that_they_open():
    rules = [
        *OPTIONS.lanes,
        Lane.model_validate({"lane": 3, "name": "Crew", "weight": 2, "claim": {"name": "roles", "value": "crew"}}),
        Lane.model_validate({"lane": 4, "name": "Adult", "weight": 6, "claim": {"name": "adult", "value": True}}),
    ]
    for claims, lane in (
        (None, 0), ({}, 0), ({"tier": "silver"}, 0), ({"tier": "gold"}, 2), ({"tier": ["silver", "gold"]}, 2),
        ({"roles": ["crew"]}, 3), ({"roles": ["crew"], "tier": "gold"}, 2), ({"tier": {"gold": 1}}, 0),
        ({"adult": True}, 4), ({"adult": 1}, 0), ({"adult": "True"}, 0), ({"adult": True, "tier": "gold"}, 2),
        ({"tier": "goldfish"}, 0), ({"tier": None}, 0),
    ):  # fmt: skip
        assert lane_of(claims, rules) == lane, claims
    assert lane_of({"tier": "gold"}, OPTIONS.lanes[:2]) == 0


@pytest.mark.parametrize("wrong", [
    [], [PRESALE], [{"lane": 0, "name": "A"}, {"lane": 0, "name": "B"}],
    [{"lane": 0, "name": "A", "code_required": True}],
    [{"lane": 0, "name": "A"}, {"lane": 1, "name": "B"}], [{"lane": 0, "name": "A"}, {**PRESALE, "lane": 16}],
    [{"lane": 0, "name": "A"}, {**PRESALE, "weight": 0}], [{"lane": 0, "name": "A", "wait": 1}],
])  # fmt: skip
def test_invalid_lanes_are_refused(wrong):
    with pytest.raises(ValidationError):
        RoomOptions.model_validate({"lanes": wrong})


def test_the_wait_estimate_uses_the_share_of_the_lane():
    line = snapshot(frame(_0=(0, 50), _1=(0, 50), _2=(0, 0)))
    assert line.estimated_wait_s(25, 0) == 10, "a quarter of ten a second"
    assert line.estimated_wait_s(75, 1) == 10
    assert line.estimated_wait_s(60, 2) == 10, "six of ten a second, once a fan is in the lane"
    alone = snapshot(frame(_0=(0, 50), _1=(9, 9), _2=(0, 0)))
    assert alone.estimated_wait_s(50) == 5


async def test_a_lane_before_its_start_is_a_prequeue_with_its_opening_time(fan, queue, publish_frame):
    early = RoomOptions.model_validate({"lanes": [{"lane": 0, "name": "General", "opens_at": LATER}, PRESALE]})
    await queue.open()
    await fan.post(PATH)
    await publish_frame(new_frame(lanes=lanes(_0=(0, 5), _1=(2, 4)), options=early.model_dump()))
    status = (await fan.get(f"{PATH}/status")).json()
    assert (status["status"], status["estimated_wait_time"]) == ("prequeue", None)
    body = (await fan.get(PATH)).json()
    assert (body["tail_seq"], body["opens_at"]) == (5, "2030-01-01T00:00:00.000Z")
    assert body["lanes"]["1"].pop("seconds_per_place") > 0
    assert body["lanes"] == {"1": {"head_seq": 2, "tail_seq": 4, "name": "Presale", "code_required": True,
                                   "estimate_changed": None}}  # fmt: skip


def test_a_lane_missing_from_a_frame_keeps_its_head():
    before = snapshot(frame(_0=(0, 5), _1=(3, 9)))
    after = snapshot(frame(_0=(1, 5)), before)
    assert after.position(1, 9) == 6, "a position never rises"
