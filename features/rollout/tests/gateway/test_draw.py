"""Fans whom a protected site sent."""

import uuid

from features.rollout.rules import outside

PATH = "/events/show/queue"


async def test_a_fan_redirected_by_forward_auth_is_among_those_who_must_wait(browser, queue):
    await queue.open(rollout_percent=5)
    for _ in range(30):
        key = {"idempotency-key": str(uuid.uuid4())}
        async with browser() as fan:
            first = await fan.post(PATH, headers=key, json={"from_gate": True})
            fan.cookies.clear()
            again = await fan.post(PATH, headers=key, json={"from_gate": True})
            assert (first.json()["join_seq"], again.status_code) == (again.json()["join_seq"], 200)
    assert not any(outside("show", holder, 5) for holder in await queue.holders())
