"""The console of a running suite: an operator's change is seen by another, and its link works for its owner alone."""

import stat

import httpx

from features.console.schemas import STREAM_PATH, Snapshot
from onsale.server_sent_events import messages
from tests.support.running.suite import RunningSuite, problem


async def snapshot(client: httpx.AsyncClient, event_id: str) -> Snapshot:
    """The first message of a new stream."""
    async with client.stream("GET", STREAM_PATH.format(event_id=event_id)) as response:
        assert response.status_code == 200, await response.aread()
        _, first, *_ = await anext(messages(response.aiter_lines()))
        return Snapshot.model_validate_json(first)


async def test_an_operator_changes_the_rate_with_the_cookie_and_a_second_one_sees_it_first(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    room = f"/admin/events/{event_id}/room"
    own = {"origin": suite.url}
    async with httpx.AsyncClient(base_url=suite.url, timeout=20) as browser:
        signed_in = await browser.post("/console/session", json={"key": suite.admin_key}, headers=own)
        assert signed_in.status_code == 200, signed_in.text
        etag = (await browser.get(room)).headers["etag"]
        assert problem(await browser.patch(room, json={"rate_per_s": 7})) == (403, "foreign-origin")
        changed = await browser.patch(room, json={"rate_per_s": 7}, headers=own | {"if-match": etag})
        assert changed.json()["rate_per_s"] == 7
        late = await browser.patch(room, json={"rate_per_s": 9}, headers=own | {"if-match": etag})
        assert problem(late) == (412, "version-mismatch")
        vitals = (await snapshot(browser, event_id)).vitals
        assert (vitals.rate.set_per_s, vitals.room.version) == (7, changed.json()["version"])


def test_the_link_is_printed_and_only_its_owner_may_read_its_file(suite: RunningSuite) -> None:
    file = suite.data_dir / "console.link"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    address, _, secret = file.read_text().strip().partition("#link=")
    assert address == f"{suite.url}/console/"
    assert f"{address}#link={secret}\n" in suite.log_text(), "it is printed whole, however narrow the terminal is"
