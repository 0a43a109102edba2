"""Only what somebody listens to is subscribed to, and when Pub/Sub is away the neighbours are asked instead."""

import asyncio

import pytest

from services.notifier.feeds import subscriber
from shared.redis import pubsub
from tests.notifier.conftest import EVENT, Cable, Neighbours, Notifier, Start, fan, line, order, stock
from tests.support.wait import wait_until

CHANNELS = {f"show:{{{EVENT}}}:line", f"show:{{{EVENT}}}:sections"}


async def test_channels_are_subscribed_to_while_somebody_listens_and_not_after(notifier: Notifier):
    assert await notifier.channels() == set()
    ears = [await notifier.listen(), await notifier.listen("?sections=A")]
    await wait_until(lambda: all(ear.last("sections") for ear in ears))
    assert await notifier.channels() == CHANNELS
    for ear in ears:
        assert await notifier.channels() == CHANNELS
        await ear.close()

    async def silent() -> bool:
        return await notifier.channels() == set()

    await wait_until(silent)
    assert await notifier.show(line(50)) == 0
    again = await notifier.listen()
    await wait_until(lambda: again.last("sections"))
    assert await notifier.channels() == CHANNELS


async def test_while_pubsub_is_away_streams_stay_open_and_neighbours_are_asked(
    notifier: Notifier, neighbours: Neighbours, cable: Cable
):
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    await cable.cut()
    await wait_until(lambda: ear.last("line").get("degraded"))
    assert ear.last("sections")["degraded"] is True
    assert [notice["kind"] for notice in ear.all("notice")] == ["interrupted"]
    neighbours.line = line(20, 20)
    await wait_until(lambda: ear.last("line")["head_seq"] == 20)
    late = await notifier.listen(token=fan(2), last_event_id=ear.last_id or "")
    await wait_until(lambda: late.last("line"))
    assert late.last("line")["degraded"] is True

    await cable.mend()
    await wait_until(lambda: "degraded" not in ear.last("line"))
    assert "degraded" not in ear.last("sections")
    await wait_until(lambda: late.last("notice"))
    assert [notice["kind"] for notice in ear.all("notice")] == ["interrupted", "restored"]

    async def heard() -> bool:
        return await notifier.show(line(30, 30)) == 1

    await wait_until(heard)
    await wait_until(lambda: ear.last("line")["head_seq"] == 30)
    assert not ear.closed


async def test_what_was_shown_while_the_connection_was_lost_is_asked_for(
    start: Start, neighbours: Neighbours, cable: Cable, monkeypatch
):
    """An order's frame is shown once: what came during a short break is not repeated by anybody."""
    monkeypatch.setattr(subscriber, "RECONNECT_S", 0.01)
    notifier = await start(ask_interval_s=0.5)  # a break too short to be noticed otherwise
    ear = await notifier.listen_order()
    await wait_until(lambda: ear.last("order"))
    generation = notifier.state.following.inbox.generation
    await cable.cut()
    neighbours.orders["ORDER12345"] = order(11, "confirmed")
    await cable.mend()
    await wait_until(lambda: notifier.state.following.inbox.generation > generation)
    await wait_until(lambda: ear.last("order") == {"reference": "ORDER12345", "status": "confirmed"})


async def test_an_event_whose_channel_falls_silent_is_followed_by_asking(start: Start, neighbours: Neighbours):
    notifier = await start(channel_stale_after_s=0.3)
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("line") and ear.last("line").get("degraded"))
    neighbours.stock = stock(20, A=1)
    await wait_until(lambda: ear.last("sections")["sections"][0]["available_seats"] == 1)
    await notifier.show(line(30, 30))
    await notifier.show(stock(30, A=2))
    await wait_until(lambda: "degraded" not in ear.last("line"))


async def test_unreadable_frames_do_no_harm(notifier: Notifier):
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    await notifier.redis.publish(f"show:{{{EVENT}}}:line", b"\xff{")
    await notifier.show(line(11, 6))
    await wait_until(lambda: ear.last("line")["head_seq"] == 6)


async def test_when_nobody_answers_a_newcomer_is_told_when_to_come_back(start: Start, neighbours: Neighbours):
    notifier = await start(first_snapshot_timeout_s=0.2)
    neighbours.away = True
    ear = await notifier.listen()
    await wait_until(lambda: ear.closed)
    assert (ear.status, [heard.name for heard in ear.heard], len(ear.retries)) == (200, ["turned_away"], 1)
    waiting = asyncio.create_task(notifier.listen())
    neighbours.away = False
    ear = await waiting
    await wait_until(lambda: ear.last("sections"))


async def test_a_process_that_never_reached_pubsub_is_not_ready(start: Start, cable: Cable):
    notifier = await start()
    following = notifier.state.following.inbox
    await following.check()
    await cable.cut()
    await wait_until(lambda: not following.connected)
    await following.check()
    following.generation = 0
    with pytest.raises(ConnectionError):
        await following.check()


async def test_a_connection_that_went_dumb_counts_as_away(notifier: Notifier, cable: Cable, monkeypatch):
    await notifier.redis.config_resetstat()
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    for name, quick_s in {"READ_S": 0.02, "SILENT_PING_S": 0.05, "SILENT_MAX_S": 0.3}.items():
        monkeypatch.setattr(pubsub, name, quick_s)
    await notifier.show(line(11, 6))  # the reader now looks up as often as that
    generation = notifier.state.following.inbox.generation

    async def pinged() -> bool:
        asked = await notifier.redis.info("commandstats")
        return int(asked.get("cmdstat_ping", {}).get("calls", 0)) >= 3

    await wait_until(pinged)
    assert notifier.state.following.inbox.generation == generation, "silence alone is no reason"
    cable.dumb = True
    await wait_until(lambda: not notifier.state.following.inbox.connected)


async def test_who_comes_while_the_last_is_leaving_is_subscribed(notifier: Notifier):
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    assert notifier.state.following.inbox._ears is not None
    await notifier.state.following.inbox._ears.unsubscribe(*CHANNELS)

    async def back() -> bool:
        return await notifier.channels() == CHANNELS

    await wait_until(back)


async def test_a_newcomer_learns_at_once_that_pubsub_is_away(notifier: Notifier, cable: Cable):
    await cable.cut()
    await wait_until(lambda: not notifier.state.following.inbox.connected)
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    assert [said["degraded"] for said in (*ear.all("line"), *ear.all("sections"))] == [True, True]


async def test_a_connection_lost_and_found_in_one_breath_is_noticed(notifier: Notifier):
    ear = await notifier.listen_order()
    await wait_until(lambda: ear.last("order"))
    generation = notifier.state.following.inbox.generation
    await notifier.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await wait_until(lambda: notifier.state.following.inbox.generation > generation)
