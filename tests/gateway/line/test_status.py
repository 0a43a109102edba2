"""Status and the public line: computed from the frame for waiting fans, requested in batches for fans near the head."""

import asyncio
import base64
import json
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from onsale.local.ports import HOST, free_port
from shared.clients import heartbeats
from shared.contracts.frames import Throttled
from shared.contracts.queue import HeartbeatReport
from shared.errors.problems import Unavailable
from shared.runtime.clock import now_ms
from shared.security.tokens import Keyring
from shared.web.app import public
from tests.gateway.conftest import gateway_client
from tests.gateway.frames import new_frame
from tests.gateway.tokens import queue_token
from tests.support.programs import need, needs
from tests.support.running.program import Program
from tests.support.running.serving import serving
from tests.support.running.suite import balancer_parameters, bearer, plan_for_ports, problem, running_balancer
from tests.support.wait import until, wait_until

PATH = "/events/show/queue"
STATUS = f"{PATH}/status"


async def test_the_status_of_a_waiting_fan_needs_no_request_to_the_queue(fan, queue, publish_frame):
    await publish_frame(new_frame(head=100, message="Doors at eight."))
    queue.calls.clear()
    answers = [await fan.get(STATUS, headers=bearer(queue_token())) for _ in range(50)]
    answer = answers[-1]
    assert answer.json() == {"status": "waiting", "join_seq": 500, "position_in_queue": 400, "estimated_wait_time": 40,
                             "estimated_wait_low": 31, "estimated_wait_high": 54,
                             "head_seq": 100, "state": "open", "poll_after_ms": answer.json()["poll_after_ms"],
                             "message": "Doors at eight.", "estimate_changed": None}  # fmt: skip
    assert set(queue.calls) <= {"/heartbeats"}
    await publish_frame(new_frame(head=450))
    assert (await fan.get(STATUS, headers=bearer(queue_token()))).json()["position_in_queue"] == 50


async def test_the_preview_of_a_position_is_what_its_fan_gets(fan, queue, publish_frame):
    await publish_frame(new_frame(head=100, message="Doors at eight."))
    queue.calls.clear()
    real = (await fan.get(STATUS, headers=bearer(queue_token()))).json()
    shown = await fan.get(f"{PATH}/preview", params={"position": real["position_in_queue"]})
    assert (shown.status_code, shown.json()) == (200, real)
    assert (await fan.get(f"{PATH}/preview", params={"position": 1})).json()["position_in_queue"] == 1
    assert set(queue.calls) <= {"/heartbeats"}
    for wrong in ({}, {"position": 0}, {"position": 10**10}, {"position": 1, "lane": -1}):
        assert problem(await fan.get(f"{PATH}/preview", params=wrong))[0] == 422
    assert problem(await fan.get("/events/unknown/queue/preview", params={"position": 1}))[0] == 404


async def test_a_position_never_rises(fan, publish_frame):
    await publish_frame(new_frame(head=300))
    await publish_frame(new_frame(head=200))
    answer = (await fan.get(STATUS, headers=bearer(queue_token()))).json()
    assert (answer["head_seq"], answer["position_in_queue"]) == (300, 200)


async def test_an_older_frame_is_ignored(publish_frame, redis, state):
    old = new_frame(message="old news")
    await publish_frame(new_frame())
    await redis.publish("show:{show}:line", old.model_dump_json())
    await redis.publish("show:{other}:line", new_frame(event_id="other").model_dump_json())
    await wait_until(lambda: state.line_cache.cached("other"))
    assert state.line_cache.cached("show").message is None


async def test_the_status_of_a_place_below_the_head_is_requested_once_a_second(fan, queue, publish_frame):
    await queue.open()
    await queue.join(*(f"fan-{n}" for n in range(1, 501)))
    await publish_frame(await queue.call(500))
    answers = await asyncio.gather(*(fan.get(STATUS, headers=bearer(queue_token())) for _ in range(20)))
    assert {answer.json()["status"] for answer in answers} == {"ready"}
    assert queue.calls["/status"] <= 2
    calls_before = queue.calls["/status"]
    for _ in range(5):
        assert (await fan.get(STATUS, headers=bearer(queue_token()))).json()["poll_after_ms"] == 2000
    assert queue.calls["/status"] == calls_before
    others = [queue_token(join_seq=seq) for seq in range(1, 41)]
    await asyncio.gather(*(fan.get(STATUS, headers=bearer(text)) for text in others))
    assert queue.calls["/status"] <= 5, "many places share one request"


async def test_while_the_line_is_not_ready_a_fan_has_a_position_and_no_estimate(fan, publish_frame):
    await publish_frame(new_frame(head=100))
    await publish_frame(new_frame(head=100, ready=False))
    answer = (await fan.get(STATUS, headers=bearer(queue_token()))).json()
    assert (answer["position_in_queue"], answer["estimated_wait_time"]) == (400, None)


async def test_poll_intervals_are_spread_and_shorter_than_the_liveness_window(publish_frame, state):
    await publish_frame(new_frame(tail=0))
    line = state.line_cache.cached("show")
    waits = [line.poll_after_ms(line.estimated_wait_s(seq), seq) for seq in range(1, 20_000)]
    assert min(waits) in range(600, 751), "who is called within a second hears of it within a second"
    assert min(waits[30:]) >= 2000, "three seconds of calls: a position moves no faster for the eye"
    await publish_frame(new_frame(tail=0, throttled=Throttled(factor=0.5, reason="easing")))
    held_back = state.line_cache.cached("show")
    assert held_back.poll_after_ms(1, 1) == 2000, "the line may be far slower than its rate"
    assert max(waits) == 10_000
    assert len(set(waits[-200:])) > 30, "fans far behind do not poll at the same time"
    assert waits[10] < waits[150], "a longer wait has a longer interval"
    await publish_frame(new_frame(tail=0, state="paused"))
    assert state.line_cache.cached("show").poll_after_ms(None, 64) == 10_000
    await publish_frame(new_frame(tail=0, liveness_window_s=3))
    assert max(state.line_cache.cached("show").poll_after_ms(None, seq) for seq in range(100)) <= 3000


async def test_polls_of_a_long_line_stay_within_the_budget_and_the_liveness_window(publish_frame, state):
    async def longest_ms(waiting, liveness_window_s):
        await publish_frame(new_frame(tail=waiting, liveness_window_s=liveness_window_s))
        line = state.line_cache.cached("show")
        assert line.poll_after_ms(None, 64, 20_000) == 10_000, "the first of the line are called next"
        return max(line.poll_after_ms(None, seq, 20_001) for seq in range(1, 65))

    assert await longest_ms(20_000, 120) == 10_000
    assert await longest_ms(200_000, 120) == 100_000, "200,000 fans poll 2,000 times a second"
    assert await longest_ms(200_000, 30) == 30_000, "a fan who is silent for longer might be passed over"


async def test_in_a_long_line_fans_who_are_not_near_the_head_read_the_public_line_and_are_heard_of_rarely(
    fan, publish_frame
):
    async def said(join_seq, **fields):
        await publish_frame(new_frame(head=100, **fields))
        return (await fan.get(STATUS, headers=bearer(queue_token(join_seq=join_seq)))).json(), (
            await fan.get(PATH)
        ).json()

    status, line = await said(20_100, tail=20_100)
    assert ("heartbeat_after_ms" in status, line["heartbeat_after_ms"], line["poll_after_ms"]) == (False, None, 4_000)
    status, line = await said(20_101, tail=20_101)
    assert 36_000 < status["heartbeat_after_ms"] <= 45_000, "a place counts as live for two windows at least"
    assert (line["heartbeat_after_ms"], line["poll_after_ms"]) == (45_000, 10_000)
    near = line["near_places"]
    assert near == 100 + 10 * (2 * 10 + 10), "what may be called before the line is read again, with time to spare"
    for places, reads_line in ((near, False), (near + 1, True)):
        status, _ = await said(100 + places, tail=30_000)
        assert ("heartbeat_after_ms" in status) == reads_line
    for places, reads_line in ((1_000, False), (1_001, True)):
        status, line = await said(100 + places, tail=30_000, rate_per_s=1000, calls_left=0)
        assert ("heartbeat_after_ms" in status) == reads_line, "behind the tickets polls are rare; the line tells"
        assert line["near_places"] == 1_000
    _, line = await said(500, tail=400_100)
    assert line["poll_after_ms"] == 20_000, "a longer line is read less often: there may be no cache"
    _, line = await said(500, tail=10_000_000)
    assert line["poll_after_ms"] == 45_000


async def test_heartbeats_of_a_long_line_are_spread(publish_frame, state):
    await publish_frame(new_frame(tail=90_000, liveness_window_s=240))
    line = state.line_cache.cached("show")
    after_ms = [line.heartbeat(seq, 50_000)["heartbeat_after_ms"] for seq in range(64)]
    assert (max(after_ms), len({*after_ms})) == (360_000, 64)
    assert min(after_ms) < 300_000


async def test_fans_whom_the_tickets_do_not_reach_poll_when_these_are_gone(publish_frame, state):
    async def polls_s(position, **changes):
        await publish_frame(new_frame(tail=200_000, liveness_window_s=240, rate_per_s=100.0, **changes))
        line = state.line_cache.cached("show")
        polls_ms = [line.poll_after_ms(line.estimated_wait_s(position), seq, position) for seq in range(64)]
        return min(polls_ms) / 1000, max(polls_ms) / 1000

    assert await polls_s(100_000) == (80.313, 100), "without stock they share the budget"
    soonest_s, latest_s = await polls_s(100_000, calls_left=5_000)
    assert 50 < soonest_s < 53, "5,000 tickets at 100 a second are gone after 50 s"
    assert latest_s == 150, "then so many poll over 100 s"
    assert (await polls_s(6_000, calls_left=5_000))[1] == 10, "tickets that are returned are for those who are next"
    assert await polls_s(100_000, calls_left=50_000) == (192.75, 240), "a fan silent for longer might be passed over"
    starts_ms = now_ms() + 60_000
    soonest_s, _ = await polls_s(100_000, calls_left=5_000, state="prequeue", sale_starts_at_ms=starts_ms)
    assert 105 < soonest_s < 113, "nor is there news before the sale"
    assert (await polls_s(4_000, calls_left=5_000, state="prequeue", sale_starts_at_ms=starts_ms))[1] == 10, (
        "an operator may start the sale early"
    )


async def test_before_the_sale_every_fan_is_in_the_prequeue(fan, publish_frame):
    await publish_frame(new_frame(state="prequeue"))
    answer = (await fan.get(STATUS, headers=bearer(queue_token()))).json()
    assert (answer["status"], answer["estimated_wait_time"]) == ("prequeue", None)


def raw_bearer(text: str) -> dict[str, bytes]:
    """Also for a text that is not ASCII."""
    return {"authorization": b"Bearer " + text.encode()}


def forged_tokens() -> list[str]:
    head, claims, mac = queue_token().split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none","typ":"onsale-queue","kid":"dev"}').rstrip(b"=").decode()
    changed = json.loads(base64.urlsafe_b64decode(claims + "=="))
    changed["seq"] = 1
    changed_claims = base64.urlsafe_b64encode(json.dumps(changed).encode()).rstrip(b"=").decode()
    return [
        f"{none}.{claims}.", f"{none}.{claims}.{mac}", f"{head}.{changed_claims}.{mac}", f"{head}.{claims}.",
        queue_token(keys=Keyring({"dev": b"another secret, thirty-two bytes"})),
        queue_token(keys=Keyring({"new": b"x" * 32})),
        "nonsense", "a.b.c", "ü.ü.ü", "x" * 3000,
    ]  # fmt: skip


async def test_a_forged_token_is_refused(fan, queue):
    await queue.open()
    for text in forged_tokens():
        for method, path in (("GET", STATUS), ("POST", PATH), ("POST", f"{PATH}/pass"), ("DELETE", PATH)):
            refused = await fan.request(method, path, headers=raw_bearer(text))
            assert (refused.status_code, refused.json()["type"]) == (401, "/problems/bad-credential"), text[:40]
    basic = await fan.get(STATUS, headers={"authorization": "Basic Zm9vOmJhcg=="})
    assert basic.status_code == 401
    assert (await fan.get(STATUS)).json()["type"] == "/problems/no-credential"
    assert not queue.calls["/joins"]
    await fan.post(PATH)
    assert (await fan.get(STATUS)).status_code == 200
    assert (await fan.get(STATUS, headers=bearer("nonsense"))).status_code == 401, "the cookie is ignored"


async def test_a_token_of_another_event_or_from_before_a_reset_is_refused(fan, publish_frame):
    await publish_frame(new_frame(epoch=2))
    for method, path in (("GET", STATUS), ("POST", PATH)):
        refused = await fan.request(method, path, headers=bearer(queue_token(event_id="other")))
        assert problem(refused) == (403, "wrong-event")
    assert problem(await fan.get(STATUS, headers=bearer(queue_token(epoch=1)))) == (410, "stale-epoch")


async def test_a_token_of_a_newer_epoch_makes_the_gateway_fetch_the_line_again(fan, queue):
    await queue.open()
    await fan.get(PATH)
    with queue.frames_are_lost():
        await queue.reset()
    answer = await fan.get(STATUS, headers=bearer(queue_token(epoch=2)))
    assert answer.json()["position_in_queue"] == 500
    ahead = await fan.get(STATUS, headers=bearer(queue_token(epoch=3)))
    assert (ahead.status_code, ahead.json()["type"]) == (503, "/problems/unavailable")


async def test_polls_are_reported_as_heartbeats_and_reports_are_sent_without_any(queue, settings):
    await queue.open(liveness_window_s=2)  # so that the queue asks for a report every half second

    def reports() -> list[HeartbeatReport]:
        return queue.received("/heartbeats", HeartbeatReport)

    def reported() -> set[int]:
        events = [event for report in reports() for event in report.events]
        return {seq for event in events if (event.event_id, event.epoch) == ("show", 1) for seq in event.lanes[0]}

    async with gateway_client(settings) as fan:
        await wait_until(reports)
        assert reports()[0].events == []
        for join_seq in (500, 501, 500):
            await fan.get(STATUS, headers=bearer(queue_token(join_seq=join_seq)))
        await wait_until(lambda: reported() == {500, 501})
        before = len(reports())
        await wait_until(lambda: len(reports()) > before)
        assert reports()[-1].events == []
        assert len({report.reporter for report in reports()}) == 1


async def test_heartbeats_of_a_failed_report_are_sent_later_in_several_requests(queue, state, monkeypatch):
    monkeypatch.setattr(heartbeats, "PLACES_PER_REPORT_MAX", 10)
    queue.away, queue.spared = True, frozenset()
    for join_seq in range(1, 36):
        state.heartbeats.record("show", 1, 0, join_seq)
    state.heartbeats.record("other", 2, 3, 7)
    with pytest.raises(Unavailable):
        await state.heartbeats.report()
    state.heartbeats.record("show", 1, 0, 36)
    queue.away = False
    before = queue.calls["/heartbeats"]
    await state.heartbeats.report()
    reports = queue.received("/heartbeats", HeartbeatReport)[before:]
    placed = [(event.event_id, lane, seqs) for report in reports for event in report.events
              for lane, seqs in event.lanes.items()]  # fmt: skip
    sizes = [sum(len(seqs) for event in report.events for seqs in event.lanes.values()) for report in reports]
    assert max(sizes) == 10
    assert sorted(seq for event_id, _, seqs in placed for seq in seqs if event_id == "show") == list(range(1, 37))
    assert ("other", 3, [7]) in placed


async def test_the_public_line_is_cacheable_and_has_an_etag(fan, queue, publish_frame):
    await publish_frame(new_frame(head=2, tail=3))
    answer = await fan.get(PATH)
    body = answer.json()
    assert body.pop("server_time").endswith("Z")
    assert body.pop("poll_after_ms") == 4_000
    assert body == {"state": "open", "epoch": 1, "head_seq": 2, "tail_seq": 3, "rate_per_s": 10.0, "live_ratio": 1.0,
                    "message": None, "sale_starts_at": None, "heartbeat_after_ms": None, "near_places": 280,
                    "seconds_per_place": 0.1, "estimate_changed": None, "estimate_band": 0.2}  # fmt: skip
    assert answer.headers["cache-control"] == "public, max-age=1"
    assert "set-cookie" not in answer.headers
    unchanged = await fan.get(PATH, headers={"if-none-match": answer.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    await publish_frame(new_frame(head=3, tail=3))
    changed = await fan.get(PATH, headers={"if-none-match": answer.headers["etag"]})
    assert (changed.status_code, changed.json()["head_seq"]) == (200, 3)
    assert queue.calls["/rooms/frame"] == 0


async def test_without_pub_sub_the_line_is_requested_every_second(fan, queue, redis, state):
    with queue.frames_are_lost():
        await queue.open()
        assert (await fan.get(PATH)).json()["head_seq"] == 0
        await queue.join("fan-1", "fan-2")
        await queue.call(2)
        await redis.client_kill_filter(_type="pubsub")
        state.line_cache._listening = False
        await wait_until(lambda: state.line_cache.cached("show").heads == {0: 2}, timeout_s=3)


async def test_a_stale_line_has_no_estimate(fan, publish_frame, state):
    await publish_frame(new_frame(head=100))
    assert state.line_cache.cached("show").estimate.per_place_s is not None
    state.line_cache.cached("show").received_s -= 20
    state.line_cache._expire_estimates()
    answer = (await fan.get(STATUS, headers=bearer(queue_token()))).json()
    assert (answer["position_in_queue"], answer["estimated_wait_time"]) == (400, None)


@pytest.mark.parametrize("path", [PATH, STATUS, f"{PATH}/pass"])
async def test_other_methods_are_refused(fan, path):
    refused = await fan.put(path)
    assert (refused.status_code, refused.json()["type"]) == (405, "/problems/method-not-allowed")


async def test_a_poll_renews_a_token_whose_key_has_rotated(fan, queue, state):
    await queue.open()
    await fan.post(PATH)
    assert "set-cookie" not in (await fan.get(STATUS)).headers
    old, ring = fan.cookies["onsale_queue_show"], state.settings.queue_token_keys
    ring.replace(Keyring({"new": b"n" * 32, **ring.keys}))
    assert (await fan.get(STATUS)).headers["set-cookie"].startswith("onsale_queue_show=")
    assert fan.cookies["onsale_queue_show"] != old
    assert "set-cookie" not in (await fan.get(STATUS)).headers
    ring.replace(Keyring({"new": b"n" * 32}))
    assert (await fan.get(STATUS)).json()["join_seq"] == 1, "the place stays valid after the old key is removed"
    assert (await fan.get(STATUS, headers=bearer(old))).status_code == 401


async def test_an_idempotency_key_names_the_same_fan_after_a_key_rotation(browser, queue, state):
    await queue.open()
    key, ring = {"idempotency-key": "k" * 22}, state.settings.queue_token_keys
    await browser().post(PATH, headers=key)
    ring.replace(Keyring({"new": b"n" * 32}))
    assert (await browser().post(PATH, headers=key)).json()["join_seq"] == 1


# -- read from a cache in front ----------------------------------------------------------------------------------------


READS, FANS, READS_FOR_S = 1_000, 20, 1.2
VCL = Path(__file__).parents[3] / "deploy/varnish.vcl"


@contextmanager
def running_varnish(port: int, folder: Path) -> Iterator[str]:
    """Varnish with the file in deploy/ in front of this port, inside this context."""
    listens = free_port()
    own = VCL.read_text().replace('.port = "8080"', f'.port = "{port}"')
    (folder / "own.vcl").write_text(own)
    varnish = Program(
        [need("varnishd"), "-F", "-j", "none", "-a", f"{HOST}:{listens}", "-f", f"{folder}/own.vcl", "-s", "malloc,8m",
         "-n", f"{folder}/varnish"], folder / "varnish.log",
    )  # fmt: skip
    varnish.start()

    def ready() -> bool:
        assert varnish.is_running, varnish.log_text()
        with socket.create_connection((HOST, listens)):
            return True

    try:
        until(ready, what="varnish")
        yield f"http://{HOST}:{listens}"
    finally:
        varnish.end(signal.SIGTERM)


@pytest.mark.parametrize("kind", [*balancer_parameters(), pytest.param("varnish", marks=needs("varnishd"))])
async def test_a_thousand_reads_of_the_public_line_reach_a_gateway_once_a_second(
    kind, app, queue, publish_frame, tmp_path
):
    await queue.open()
    await publish_frame(new_frame(head=100, tail=90_000))
    reached, inner = Counter[str](), public(app)

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        reached[scope["method"] + " " + scope["path"]] += 1
        await inner(scope, receive, send)

    async with serving(counted) as port:
        cache = running_varnish(port, tmp_path) if kind == "varnish" else running_balancer(
            kind, plan_for_ports(port), tmp_path
        )  # fmt: skip
        with cache as address:
            async with httpx.AsyncClient(base_url=address, timeout=30) as client:

                async def read(fan: int) -> None:
                    for n in range(READS // FANS):
                        answer = await client.get(f"{PATH}?{fan}-{n}", headers=bearer(queue_token(join_seq=500 + fan)))
                        assert (answer.status_code, answer.json()["head_seq"]) == (200, 100)
                        await asyncio.sleep(READS_FOR_S * FANS / READS)

                began_s = monotonic()
                await asyncio.gather(*map(read, range(FANS)))
                took_s = monotonic() - began_s
                etag = (await client.get(PATH)).headers["etag"]
                assert (await client.get(PATH, headers={"if-none-match": etag})).status_code == 304
                positions = [
                    (await client.get(f"{PATH}/status", headers=bearer(queue_token(join_seq=seq)))).json()
                    for seq in (500, 600)
                ]  # fmt: skip
                joined = await client.post(PATH, headers={"origin": address})
    at_once = FANS if kind == "haproxy" else 2  # it does not let the others wait for the first one's answer
    assert 2 <= reached[f"GET {PATH}"] <= at_once * (took_s + 2), reached
    assert [place.get("position_in_queue", place) for place in positions] == [400, 500], (
        "what is a fan's own is never kept"
    )
    assert reached[f"POST {PATH}"] == 1, joined.text
