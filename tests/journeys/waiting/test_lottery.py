"""A pre-queue with a lottery over the running suite: entry, close, draw, calls by rank, and anybody's check of it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from onsale.cli import app as cli
from onsale.lottery_check import drawn_orders
from shared.contracts.lottery import PublishedLottery
from shared.runtime.clock import now_ms, rfc3339
from tests.support.running.suite import Fan, RunningSuite, bearer
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


async def test_a_line_is_drawn_and_called_as_anybody_can_check(
    suite: RunningSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    event_id = await open_lottery(suite)
    async with suite.browser() as browser:
        fans = [Fan(browser, event_id) for _ in range(8)]
        places = await asyncio.gather(*(fan.join() for fan in fans))
        assert {place["status"] for place in places} == {"prequeue"}
        assert {place["position_in_queue"] for place in places} == {None}
        before = (await browser.get(f"/events/{event_id}/queue/lottery")).json()
        assert (before["stage"], before["seed"]) == ("open", None)

        async def closed() -> bool:
            return await stage(browser, event_id) == "closed"

        await wait_until(closed, timeout_s=20, interval_s=0.2)
        late = Fan(browser, event_id)
        assert (await late.join())["join_seq"] == 9
        assert (await draw(suite, event_id)).json()["type"] == "/problems/room-state-conflict"

        async def drawn() -> bool:
            return (await draw(suite, event_id)).status_code == 200

        await wait_until(drawn, timeout_s=20, interval_s=0.2)
        told = (await browser.get(f"/events/{event_id}/queue/lottery")).json()
        assert (told["public_value"], told["commitment"], told["entrants"]["0"]["n"]) == (
            VALUE, before["commitment"], 8,
        )  # fmt: skip
        await called_by_rank(told, [*fans, late])
        proof = (await browser.get(f"/events/{event_id}/queue/lottery/proof", headers=bearer(fans[3].token))).json()
    assert await suite.audit(event_id) == []

    ranks = {fan.join_seq: rank_of(told, fan) for fan in fans}
    (tmp_path / "proof.json").write_text(json.dumps(proof))
    (tmp_path / "before.json").write_text(json.dumps(before))
    options = ["--url", suite.url, "--public-value", VALUE, "--proof", str(tmp_path / "proof.json")]
    options += ["--earlier", str(tmp_path / "before.json"), "--entry", "4"]

    def verify(place: int) -> int:
        with pytest.raises(SystemExit) as ended:
            cli.app(["lottery", "verify", event_id, *options, "--place", str(place)])
        return int(ended.value.code or 0)

    assert await asyncio.to_thread(verify, ranks[4]) == 0
    assert await asyncio.to_thread(verify, ranks[4] % 8 + 1) == 1
    assert "entry 4 got place" in capsys.readouterr().out


def rank_of(told: dict[str, Any], fan: Fan) -> int:
    """As anybody computes it from the published document."""
    return drawn_orders(PublishedLottery.model_validate(told))[0].rank(fan.join_seq)


async def called_by_rank(told: dict[str, Any], fans: list[Fan]) -> None:
    """Until everybody is called: nobody before their rank is reached, and everybody sees how far away it is."""
    waiting = {fan.join_seq: fan for fan in fans}
    ranks = {fan.join_seq: rank_of(told, fan) for fan in fans}
    assert sorted(ranks.values()) == list(range(1, len(fans) + 1))
    assert ranks[len(fans)] == len(fans), "the late comer comes last"
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
