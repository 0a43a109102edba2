"""A room with a lottery: positions by rank, and one published answer for all who verify it."""

import asyncio

import httpx

from shared.contracts.frames import LaneDraw, LotteryFrame
from shared.rules.lottery_ranking import commitment, permutation
from tests.gateway.fake_queue import FakeQueue, FakeRoom
from tests.support.lotteries import SEED, published
from tests.support.running.suite import bearer, problem

KEY = b"k" * 32
DRAWN = LotteryFrame(stage="drawn", lanes={0: LaneDraw(entrants_n=20, key=KEY.hex())})
WAITING_FOR_IT = LotteryFrame(stage="closed")


async def joined(fan: httpx.AsyncClient, room: FakeRoom, after: int) -> dict:
    """Somebody who joins after so many others."""
    room.holders = [f"other-{n}" for n in range(after)]
    return (await fan.post("/events/show/queue")).json()


async def status(fan: httpx.AsyncClient, place: dict) -> dict:
    return (await fan.get("/events/show/queue/status", headers=bearer(place["queue_token"]))).json()


async def test_before_the_draw_nobody_has_a_position(queue: FakeQueue, fan: httpx.AsyncClient):
    room = queue.open(state="prequeue", draw=WAITING_FOR_IT)
    place = await joined(fan, room, 4)
    assert (place["join_seq"], place["position_in_queue"], place["rank"]) == (5, None, None)
    told = await status(fan, place)
    assert (told["status"], told["position_in_queue"], told["rank"]) == ("prequeue", None, None)


async def test_after_the_draw_the_position_follows_the_rank_without_a_request(
    queue: FakeQueue, fan: httpx.AsyncClient, show
):
    room = queue.open(state="prequeue", draw=WAITING_FOR_IT)
    place, rank = await joined(fan, room, 4), permutation(20, KEY).rank(5)
    await show(room.change(state="open", draw=DRAWN))
    asked = queue.calls.copy()
    told = await status(fan, place)
    assert (told["status"], told["position_in_queue"], told["rank"], told["join_seq"]) == ("waiting", rank, rank, 5)
    await show(room.change(head_seq=rank - 1))
    assert (await status(fan, place))["position_in_queue"] == 1
    assert queue.calls["/status"] == asked["/status"]
    await show(room.change(head_seq=rank))
    assert (await status(fan, place))["position_in_queue"] == 0
    assert queue.calls["/status"] == asked["/status"] + 1, "who may have been called is asked about"


async def test_a_late_comer_stands_behind_all_entrants(queue: FakeQueue, fan: httpx.AsyncClient):
    room = queue.open(draw=DRAWN)
    place = await joined(fan, room, 22)
    assert (place["join_seq"], place["rank"], place["position_in_queue"]) == (23, 23, 23)


async def test_the_public_line_says_how_far_it_is_and_no_more(queue: FakeQueue, fan: httpx.AsyncClient):
    queue.open(draw=DRAWN)
    line = await fan.get("/events/show/queue")
    assert line.json()["lottery"] == "drawn"
    assert KEY.hex() not in line.text
    queue.open("other")
    assert "lottery" not in (await fan.get("/events/other/queue")).json()


async def test_a_crowd_that_checks_is_one_question_a_second(queue: FakeQueue, fan: httpx.AsyncClient):
    queue.open(lottery=published())
    answers = await asyncio.gather(*(fan.get("/events/show/queue/lottery") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert answers[0].json()["commitment"] == commitment(SEED)
    assert answers[0].headers["cache-control"] == "public, max-age=1"
    assert queue.calls["/lottery"] == 1


async def test_a_room_without_one_says_so(queue: FakeQueue, fan: httpx.AsyncClient):
    queue.open()
    for _ in range(2):
        assert problem(await fan.get("/events/show/queue/lottery")) == (404, "no-lottery")
    assert problem(await fan.get("/events/nowhere/queue/lottery")) == (404, "unknown-event")
    assert problem(await fan.get("/events/show/queue/lottery/proof")) == (401, "no-credential")
    assert queue.calls["/lottery"] == 2
