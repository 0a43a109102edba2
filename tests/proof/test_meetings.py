"""What a swarm's fan meets is judged: each kind of wrong answer is found."""

import random
import time

import httpx
import pytest

from onsale.client import Problem
from proof.insistence import InsistentClient, Meetings, Unanswered

pytestmark = pytest.mark.proof  # a change of the product breaks none of it


async def test_what_fans_meet_is_judged() -> None:
    """A fan asks again after no answer and after 503; a 500 and two answers to one key are found."""
    meetings, answers = Meetings(), list[httpx.Response | Exception]()

    def answer(_: httpx.Request) -> httpx.Response:
        given = answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    def held(name: str) -> httpx.Response:
        return httpx.Response(201, json={"reservation_id": name})

    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    client = InsistentClient("http://suite", meetings, http=http, rng=random.Random(1))
    answers[:] = [httpx.ConnectError("reset"), httpx.Response(503), httpx.Response(500), held("R1")]
    assert (await client.hold("e", {"seats": ["A-1-1"]}))["reservation_id"] == "R1"
    assert len(meetings.found) == 1
    assert meetings.found[0].startswith("hold was answered 500 ")
    assert meetings.longest_silence_s(0.0, time.monotonic()) > 0.3
    twice = InsistentClient("http://suite", meetings, http=http, repeats=True)
    answers[:] = [held("R1"), held("R1"), held("R1"), held("R2")]
    for _ in range(2):
        await twice.hold("e", {"seats": ["A-1-1"]})
    assert meetings.found[1:] == ["hold: one key, two answers: [['R1'], ['R2']]"]
    answers[:] = [httpx.Response(409)]
    with pytest.raises(Problem):
        await client.hold("e", {"seats": ["A-1-1"]})
    meetings.deadline_s, answers[:] = 0.0, [httpx.Response(503)]
    with pytest.raises(Unanswered):
        await client.hold("e", {"seats": ["A-1-1"]})
