"""A pre-queue with a lottery over the running suite: entry, close, draw, calls by rank, and anybody's check of it."""

import asyncio
import json
import time
from pathlib import Path

import httpx
import pytest

from onsale import cli
from shared.clock import now_ms, rfc3339
from tests.support.suite import Fan, RunningSuite, bearer
from tests.support.wait import wait_until

VALUE = "24,331.09"


async def open_lottery(suite: RunningSuite) -> str:
    """Entry closes in 1.5 s, the value is known in 4 s, the sale starts then, one fan a second."""
    closes, known = (rfc3339(now_ms() + after_ms) for after_ms in (1_500, 4_000))
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
        places = [await fan.join() for fan in fans]
        assert {place["status"] for place in places} == {"prequeue"}
        assert {place["position_in_queue"] for place in places} == {None}
        before = (await browser.get(f"/events/{event_id}/queue/lottery")).json()
        assert (before["stage"], before["seed"]) == ("open", None)

        async def closed() -> bool:
            return await stage(browser, event_id) == "closed"

        await wait_until(closed, timeout_s=10)
        late = Fan(browser, event_id)
        assert (await late.join())["join_seq"] == 9
        assert (await draw(suite, event_id)).json()["type"] == "/problems/room-state-conflict"

        async def drawn() -> bool:
            return (await draw(suite, event_id)).status_code == 200

        await wait_until(drawn, timeout_s=15)
        told = (await browser.get(f"/events/{event_id}/queue/lottery")).json()
        assert (told["public_value"], told["commitment"], told["entrants"]["0"]["n"]) == (
            VALUE, before["commitment"], 8,
        )  # fmt: skip
        await called_by_rank(suite, [*fans, late])
        proof = (await browser.get(f"/events/{event_id}/queue/lottery/proof", headers=bearer(fans[3].token))).json()
    assert await suite.audit(event_id) == []

    ranks = {fan.join_seq: await rank_of(suite, event_id, fan) for fan in fans}
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


async def rank_of(suite: RunningSuite, event_id: str, fan: Fan) -> int:
    """As anybody computes it from the published document."""
    from onsale.lottery_check import orders
    from shared.contracts.lottery import PublishedLottery

    async with suite.browser() as browser:
        told = PublishedLottery.model_validate((await browser.get(f"/events/{event_id}/queue/lottery")).json())
    return orders(told)[0].rank(fan.join_seq)


async def called_by_rank(suite: RunningSuite, fans: list[Fan]) -> None:
    """Polls until everybody is called; who was called first stands first in the published order."""
    seen: dict[int, None] = {}
    deadline = time.monotonic() + 20
    while len(seen) < len(fans):
        assert time.monotonic() < deadline, seen
        for fan in fans:
            status = await fan.status()
            if status["status"] == "ready":
                seen.setdefault(fan.join_seq)
            else:
                assert fan.join_seq in seen or status["position_in_queue"] is not None
        await asyncio.sleep(0.05)
    ranks = [
        await rank_of(suite, fans[0].event_id, fan) for fan in sorted(fans, key=lambda f: list(seen).index(f.join_seq))
    ]
    assert ranks == sorted(ranks)
    assert list(seen)[-1] == 9, "the late comer comes last"
