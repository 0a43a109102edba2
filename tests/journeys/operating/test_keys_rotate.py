"""Keys rotate in a running suite of five processes, while fans wait, choose and listen."""

import base64
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.engines.engines import fast_place
from tests.support.running.suite import Fan, RunningSuite, bearer, problem
from tests.support.wait import wait_until

TURN_S = 20


@pytest.fixture
def processes() -> Iterator[RunningSuite]:
    """A suite of its own: its keys change."""
    with tempfile.TemporaryDirectory(prefix="onsale-keys-", dir=fast_place()) as folder:
        running = RunningSuite(Path(folder) / "data", "--processes").start()
        try:
            yield running.wait_until_ready()
        finally:
            assert running.stop() == 0, running.log_text()


def keys(suite: RunningSuite, *words: str) -> None:
    command = [sys.executable, "-P", "-m", "onsale", "keys", *words, "--data-dir", str(suite.data_dir)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def kid(token: str) -> str:
    header = token.partition(".")[0]
    return str(json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))["kid"])


async def published(browser: httpx.AsyncClient) -> list[str]:
    return [key["kid"] for key in (await browser.get("/.well-known/jwks.json")).json()["keys"]]


async def listens(suite: RunningSuite, event_id: str, token: str) -> int:
    """The status with which the notifier answers this token's stream."""
    async with httpx.AsyncClient(base_url=suite.url, timeout=10) as browser:
        path = f"/events/{event_id}/sections/updates"
        async with browser.stream("GET", path, headers=bearer(token)) as stream:
            return stream.status_code


async def seats(browser: httpx.AsyncClient, event_id: str, admission: str) -> int:
    """The status with which inventory answers this pass."""
    return (await browser.get(f"/events/{event_id}/sections/A/seats", headers=bearer(admission))).status_code


async def test_keys_rotate_while_fans_wait(processes: RunningSuite) -> None:
    suite = processes
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        early = await Fan(browser, event_id).come_in()
        assert (kid(early.token), kid(early.admission)) == ("k1", "k1")
        keys(suite, "rotate", "pass")

        async def announced() -> bool:
            return await published(browser) == ["k1", "k2"]

        await wait_until(announced, timeout_s=TURN_S)
        assert kid((await Fan(browser, event_id).come_in()).admission) == "k1", "published before anybody signs with it"
        for purpose in ("pass", "queue-token", "service"):
            keys(suite, "rotate", purpose, "--now")
        late = Fan(browser, event_id)

        async def signs_anew() -> bool:
            nonlocal late
            late = await Fan(browser, event_id).come_in()
            return (kid(late.token), kid(late.admission)) == ("k2", "k2")

        await wait_until(signs_anew, timeout_s=TURN_S)
        assert sorted(await published(browser)) == ["k1", "k2"]
        for fan in (early, late):
            assert (await fan.status())["status"] == "admitted"
            assert await listens(suite, event_id, fan.token) == 200
            assert await seats(browser, event_id, fan.admission) == 200
        again = await browser.post(f"/events/{event_id}/queue", headers=bearer(early.token))
        assert (again.status_code, again.json()["join_seq"]) == (200, early.join_seq)
        assert kid(again.json()["queue_token"]) == "k2", "a fan who comes back has a token of the new key"
        for purpose in ("pass", "queue-token", "service"):
            keys(suite, "retire", purpose, "k1", "--now")

        async def is_refused() -> bool:
            answers = [
                (await browser.get(f"/events/{event_id}/queue/status", headers=bearer(early.token))).status_code,
                await listens(suite, event_id, early.token),
                await seats(browser, event_id, early.admission),
            ]
            return answers == [401] * 3 and await published(browser) == ["k2"]

        await wait_until(is_refused, timeout_s=TURN_S)
        refused = await browser.get(f"/events/{event_id}/queue/status", headers=bearer(early.token))
        assert problem(refused) == (401, "bad-credential")
        assert (await late.buy(await late.hold(seats=["A-1-1"])))["status"] == "confirmed"
        (suite.data_dir / "keys.json").write_text("{")
        log = suite.data_dir / "log" / "gateway.log"
        await wait_until(lambda: "keys.rejected" in log.read_text(), timeout_s=TURN_S)
        assert (await Fan(browser, event_id).come_in()).join_seq > late.join_seq
        assert '"by":' in log.read_text()
        assert "secret" not in log.read_text()
    assert await suite.audit(event_id) == []
