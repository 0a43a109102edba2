"""A lottery in a running suite: entry, close, draw, calls by rank, and `onsale lottery verify`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from features.lottery.check import drawn_orders
from features.lottery.contracts import PublishedLottery
from onsale.client import Fan
from shared.runtime.clock import now_ms, rfc3339
from tests.support.running.program import CommandResult, command_line
from tests.support.running.suite import RunningSuite, bearer, fan_of
from tests.support.wait import wait_until

VALUE = "24,331.09"


async def open_lottery(suite: RunningSuite) -> str:
    """Entry closes in 4 s, the value is known in 6 s, the sale starts then, four fans a second."""
    closes, known = (rfc3339(now_ms() + after_ms) for after_ms in (4_000, 6_000))
    rules = {"entry_closes_at": closes, "public_value": {"what": "closing number of an index", "known_at": known}}
    room = {"ordering": "lottery", "lottery": rules, "sale_starts_at": known, "rate_per_s": 4, "burst": 1}
    return await suite.open_event(room=room)


async def stage(browser: httpx.AsyncClient, event_id: str) -> str:
    return str((await browser.get(f"/events/{event_id}/queue")).json()["lottery"])


async def draw(suite: RunningSuite, event_id: str) -> httpx.Response:
    async with suite.operator() as operator:
        return await operator.post(f"/admin/queue/events/{event_id}/lottery/draw", json={"public_value": VALUE})


async def test_a_lottery_is_drawn_called_by_rank_and_verified(
    suite: RunningSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onsale = command_line(monkeypatch, capsys)
    event_id = await open_lottery(suite)
    async with suite.browser() as browser:
        fans = [fan_of(browser, event_id) for _ in range(8)]
        places = await asyncio.gather(*(fan.join() for fan in fans))
        assert {place["status"] for place in places} == {"prequeue"}
        assert {place["position_in_queue"] for place in places} == {None}
        before = (await browser.get(f"/events/{event_id}/queue/lottery")).json()
        assert (before["stage"], before["seed"]) == ("open", None)

        async def is_closed() -> bool:
            return await stage(browser, event_id) == "closed"

        await wait_until(is_closed, timeout_s=20, interval_s=0.2)
        late = fan_of(browser, event_id)
        assert (await late.join())["join_seq"] == 9
        assert (await draw(suite, event_id)).json()["type"] == "/problems/room-state-conflict"

        async def is_drawn() -> bool:
            return (await draw(suite, event_id)).status_code == 200

        await wait_until(is_drawn, timeout_s=20, interval_s=0.2)
        published = (await browser.get(f"/events/{event_id}/queue/lottery")).json()
        assert (published["public_value"], published["commitment"], published["entrants"]["0"]["n"]) == (
            VALUE, before["commitment"], 8,
        )  # fmt: skip
        await wait_for_calls_by_rank(published, [*fans, late])
        proof = (
            await browser.get(f"/events/{event_id}/queue/lottery/proof", headers=bearer(fans[3].queue_token))
        ).json()
    assert await suite.wrong(event_id) == []

    ranks = {fan.join_seq: rank_of(published, fan) for fan in fans}
    (tmp_path / "proof.json").write_text(json.dumps(proof))
    (tmp_path / "before.json").write_text(json.dumps(before))
    options = ["--url", suite.url, "--public-value", VALUE, "--proof", str(tmp_path / "proof.json")]
    options += ["--earlier", str(tmp_path / "before.json"), "--entry", "4"]

    async def verify(place: int) -> CommandResult:
        return await asyncio.to_thread(onsale, "lottery", "verify", event_id, *options, "--place", str(place))

    assert (await verify(ranks[4])).returncode == 0
    wrong_place = await verify(ranks[4] % 8 + 1)
    assert (wrong_place.returncode, "entry 4 got place" in wrong_place.stdout) == (1, True)


def rank_of(published: dict[str, Any], fan: Fan) -> int:
    """The fan's rank, computed from the published document."""
    return drawn_orders(PublishedLottery.model_validate(published))[0].rank(fan.join_seq)


async def wait_for_calls_by_rank(published: dict[str, Any], fans: list[Fan]) -> None:
    """Waits until all fans are called: each once their rank is reached. Until then they see their distance to it."""
    waiting = {fan.join_seq: fan for fan in fans}
    ranks = {fan.join_seq: rank_of(published, fan) for fan in fans}
    assert sorted(ranks.values()) == list(range(1, len(fans) + 1))
    assert ranks[len(fans)] == len(fans), "a fan who joins after the close is last"
    heads: list[int] = []

    async def all_called() -> bool:
        for join_seq, fan in list(waiting.items()):
            status = await fan.status()
            rank, head_seq = ranks[join_seq], status["head_seq"]
            assert (status["rank"], status["position_in_queue"]) == (rank, max(0, rank - head_seq))
            if status["status"] == "ready":
                assert rank <= head_seq
                heads.append(head_seq)
                del waiting[join_seq]
        return not waiting

    await wait_until(all_called, timeout_s=30, interval_s=0.4)
    assert heads == sorted(heads)
