"""A room with a lottery: positions follow the rank, and the published data is cached for all who verify it."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import httpx

from features.lottery.contracts import ProofQuestion
from features.lottery.gateway import LotteryCache
from features.lottery.tests.draws import close_entry, draw, open_lottery, published
from shared.contracts.frames import LineFrame
from shared.rpc import ServiceClient
from shared.security.tokens import QueueToken
from tests.support.running.services import QueueService
from tests.support.running.suite import bearer, problem


async def joined(fan: httpx.AsyncClient, queue: QueueService, after: int) -> dict:
    """Joins after this many other fans; returns the place."""
    await queue.join(*(f"other-{n}" for n in range(after)))
    return (await fan.post("/events/show/queue")).json()


async def drawn(queue) -> LineFrame:
    """Draws the lottery among those who have joined; its sale is open."""
    await close_entry(queue)
    queue.advance_clock(100)
    await draw(queue)
    queue.advance_clock(40)
    return await queue.tick()


async def status(fan: httpx.AsyncClient, place: dict) -> dict:
    return (await fan.get("/events/show/queue/status", headers=bearer(place["queue_token"]))).json()


async def test_before_the_draw_no_fan_has_a_position(queue, fan):
    await open_lottery(queue)
    place = await joined(fan, queue, 4)
    assert (place["join_seq"], place["position_in_queue"], place["rank"]) == (5, None, None)
    body = await status(fan, place)
    assert (body["status"], body["position_in_queue"], body["rank"]) == ("prequeue", None, None)


async def test_after_the_draw_the_position_follows_the_rank_without_a_request(queue, fan, publish_frame):
    await open_lottery(queue)
    place = await joined(fan, queue, 19)
    await publish_frame(await drawn(queue))
    rank = (await queue.state.rooms.get("show")).ranking.rank(0, 20)
    calls_before = queue.calls["/status"]
    body = await status(fan, place)
    assert (body["status"], body["position_in_queue"], body["rank"], body["join_seq"]) == ("waiting", rank, rank, 20)
    if rank > 1:
        await publish_frame(await queue.call(rank - 1))
    assert (await status(fan, place))["position_in_queue"] == 1
    assert queue.calls["/status"] == calls_before
    await publish_frame(await queue.call())
    assert (await status(fan, place))["position_in_queue"] == 0
    assert queue.calls["/status"] == calls_before + 1, "the status of a place at the head is requested"


async def test_a_fan_who_joins_after_the_draw_is_behind_all_entrants(queue, fan):
    await open_lottery(queue)
    await queue.join(*(f"entrant-{n}" for n in range(20)))
    await drawn(queue)
    place = await joined(fan, queue, 2)
    assert (place["join_seq"], place["rank"], place["position_in_queue"]) == (23, 23, 23)


async def test_the_public_line_has_the_stage_of_the_lottery_and_not_its_key(queue, fan):
    await open_lottery(queue)
    await queue.join("entrant")
    frame = await drawn(queue)
    line = await fan.get("/events/show/queue")
    assert line.json()["lottery"] == "drawn"
    assert frame.lottery is not None
    assert frame.lottery.lanes[0].key not in line.text
    await queue.open("other")
    assert "lottery" not in (await fan.get("/events/other/queue")).json()


async def test_many_requests_for_the_published_lottery_are_one_to_the_queue(queue, fan):
    await open_lottery(queue)
    answers = await asyncio.gather(*(fan.get("/events/show/queue/lottery") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert answers[0].json()["commitment"] == (await published(queue)).commitment
    assert answers[0].headers["cache-control"] == "public, max-age=1"
    assert queue.calls["/lottery"] == 1


async def test_a_room_without_a_lottery_answers_404(queue, fan):
    await queue.open()
    for _ in range(2):
        assert problem(await fan.get("/events/show/queue/lottery")) == (404, "no-lottery")
    assert problem(await fan.get("/events/nowhere/queue/lottery")) == (404, "unknown-event")
    assert problem(await fan.get("/events/show/queue/lottery/proof")) == (401, "no-credential")
    assert queue.calls["/lottery"] == 2


async def test_one_place_takes_one_of_the_proofs_under_way():
    go_on, asked = asyncio.Event(), list[ProofQuestion]()

    async def call(_path: str, question: ProofQuestion, _answer: object) -> str:
        asked.append(question)
        await go_on.wait()
        return question.place.holder

    lotteries: Any = LotteryCache(cast(ServiceClient, SimpleNamespace(call=call)))
    places = [QueueToken("show", 1, 0, 7, holder=holder, issued_at_s=0) for holder in ["greedy"] * 40 + ["fan"]]
    proofs = [asyncio.create_task(lotteries.prove(place)) for place in places]
    await asyncio.sleep(0.01)
    go_on.set()
    assert await asyncio.gather(*proofs) == ["greedy"] * 40 + ["fan"]
    assert len(asked) == 2
