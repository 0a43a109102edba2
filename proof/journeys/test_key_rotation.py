"""Signing keys rotate in a running suite of two processes while fans wait, hold seats and read streams."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from tests.support.running.suite import RunningSuite, bearer, fan_of, problem, running_suite
from tests.support.wait import wait_until

EFFECTIVE_WITHIN_S = 20


@pytest.fixture
def suite() -> Iterator[RunningSuite]:
    """Not the shared suite, because its keys change."""
    with running_suite(processes=2) as running:
        yield running


def run_keys(suite: RunningSuite, *arguments: str) -> None:
    command = [sys.executable, "-P", "-m", "onsale", "keys", *arguments, "--data-dir", str(suite.data_dir)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def key_id(token: str | None) -> str:
    header = str(token).partition(".")[0]
    return str(json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))["kid"])


async def published_key_ids(browser: httpx.AsyncClient) -> list[str]:
    return [key["kid"] for key in (await browser.get("/.well-known/jwks.json")).json()["keys"]]


async def stream_status(suite: RunningSuite, event_id: str, token: str | None) -> int:
    """The status with which the notifier answers this token's stream."""
    async with httpx.AsyncClient(base_url=suite.url, timeout=10) as browser:
        path = f"/events/{event_id}/sections/updates"
        async with browser.stream("GET", path, headers=bearer(token)) as stream:
            return stream.status_code


async def seats_status(browser: httpx.AsyncClient, event_id: str, admission: str | None) -> int:
    """The status with which inventory answers this pass."""
    return (await browser.get(f"/events/{event_id}/sections/A/seats", headers=bearer(admission))).status_code


async def test_rotated_keys_sign_anew_and_retired_keys_are_refused(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        early = await fan_of(browser, event_id).come_in()
        assert (key_id(early.queue_token), key_id(early.admission)) == ("k1", "k1")
        run_keys(suite, "rotate", "pass")

        async def key_is_announced() -> bool:
            return await published_key_ids(browser) == ["k1", "k2"]

        await wait_until(key_is_announced, timeout_s=EFFECTIVE_WITHIN_S)
        assert key_id((await fan_of(browser, event_id).come_in()).admission) == "k1", (
            "an announced key does not sign yet"
        )
        for purpose in ("pass", "queue-token", "service"):
            run_keys(suite, "rotate", purpose, "--now")
        late = fan_of(browser, event_id)

        async def new_keys_sign() -> bool:
            nonlocal late
            late = await fan_of(browser, event_id).come_in()
            return (key_id(late.queue_token), key_id(late.admission)) == ("k2", "k2")

        await wait_until(
            new_keys_sign, timeout_s=EFFECTIVE_WITHIN_S, interval_s=1
        )  # each of them holds one of 90 tickets back
        assert sorted(await published_key_ids(browser)) == ["k1", "k2"]
        for fan in (early, late):
            assert (await fan.status())["status"] == "admitted"
            assert await stream_status(suite, event_id, fan.queue_token) == 200
            assert await seats_status(browser, event_id, fan.admission) == 200
        again = await browser.post(f"/events/{event_id}/queue", headers=bearer(early.queue_token))
        assert (again.status_code, again.json()["join_seq"]) == (200, early.join_seq)
        assert key_id(again.json()["queue_token"]) == "k2", "a returning fan gets a token of the new key"
        for purpose in ("pass", "queue-token", "service"):
            run_keys(suite, "retire", purpose, "k1", "--now")

        async def old_keys_are_refused() -> bool:
            answers = [
                (await browser.get(f"/events/{event_id}/queue/status", headers=bearer(early.queue_token))).status_code,
                await stream_status(suite, event_id, early.queue_token),
                await seats_status(browser, event_id, early.admission),
            ]
            return answers == [401] * 3 and await published_key_ids(browser) == ["k2"]

        await wait_until(old_keys_are_refused, timeout_s=EFFECTIVE_WITHIN_S)
        refused = await browser.get(f"/events/{event_id}/queue/status", headers=bearer(early.queue_token))
        assert problem(refused) == (401, "bad-credential")
        assert (await late.buy(await late.hold({"seats": ["A-1-1"]})))["status"] == "confirmed"
        (suite.data_dir / "keys.json").write_text("{")
        logs = [suite.data_dir / "log" / f"suite-{n}.log" for n in (1, 2)]
        await wait_until(lambda: all("keys.rejected" in log.read_text() for log in logs), timeout_s=EFFECTIVE_WITHIN_S)
        assert (await fan_of(browser, event_id).come_in()).join_seq > late.join_seq
        for log in logs:
            assert '"by":' in log.read_text()
            assert "secret" not in log.read_text()
    assert await suite.wrong(event_id) == []
