"""Forward-auth in front of a shop that knows nothing of Onsale, through a real nginx configured as the guide says."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from services.gateway.forward_auth.handover_codes import COOKIE_PROBE
from shared.contracts.frames import Revoked, revoked_channel
from shared.rules.rollout import outside
from shared.runtime.settings import development_keys
from shared.security.tokens import Pass, sign_pass
from shared.web.app import public
from tests.support.providers.shop import NGINX, SCRIPT, browser, guarded_shop
from tests.support.running.serving import serving
from tests.support.wait import wait_until

pytestmark = pytest.mark.skipif(not Path(NGINX).exists(), reason="nginx is not installed")


@pytest.fixture
async def gateway(app) -> AsyncIterator[int]:
    async with serving(public(app)) as port:
        yield port


@pytest.fixture
async def shop(gateway, queue, tmp_path) -> AsyncIterator[str]:
    """The shop's address; the room's rules allow returning there only."""
    line = queue.open()
    async with guarded_shop(tmp_path, gateway, "show") as address:
        line.options = {
            "gate": {
                "waiting_room": f"http://127.0.0.1:{gateway}", "return_to": [address],
                "let_through": ["/assets/*", "/up"],
            }
        }  # fmt: skip
        yield address


@pytest.fixture
async def rules(shop, queue, show):
    """Changes the room's options, and waits until the gateway has them."""

    async def change(percent: float = 100, **gate) -> None:
        line = queue.rooms["show"]
        options = {"rollout_percent": percent, "gate": {**line.options["gate"], **gate}}
        await show(line.change(options=options))

    await change()
    return change


def fragment_of(location: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(location).fragment).items()}


def admission(**changes) -> str:
    now_s = int(time.time())
    facts = {"event_id": "show", "holder": "holder", "jti": "1-0-1-1", "epoch": 1, "lane": 0, "join_seq": 1,
             "qty_max": 6, "issued_at_s": now_s, "expires_at_s": now_s + 60, **changes}  # fmt: skip
    keys = development_keys(facts.pop("keys", "pass"))
    return sign_pass(keys, Pass(**facts))


async def wait_and_come_back(fan: httpx.AsyncClient, shop: str, page: str, queue, show) -> str:
    """What browser and fan page do: redirect to the waiting room, join, call, claim, and return link."""
    sent = await fan.get(shop + page)
    assert sent.status_code == 303, sent.text
    room = urlsplit(sent.headers["location"])
    base_url = f"{room.scheme}://{room.netloc}"
    assert room.path == "/e/show"
    assert not room.query
    return_values = fragment_of(sent.headers["location"])
    assert return_values["return_to"] == shop + page
    assert (await fan.get(f"{base_url}{room.path}")).status_code == 200
    ours = {"origin": base_url}
    joined = await fan.post(f"{base_url}/events/show/queue", headers=ours, json={"from_gate": True})
    assert joined.status_code == 201, joined.text
    early = await fan.post(f"{base_url}/events/show/queue/handover", json=return_values, headers=ours)
    assert early.status_code == 401, "who waits has nothing to hand over"
    await show(queue.rooms["show"].change(head_seq=joined.json()["join_seq"]))
    assert (await fan.post(f"{base_url}/events/show/queue/pass", headers=ours)).status_code == 200
    handed = await fan.post(f"{base_url}/events/show/queue/handover", json=return_values, headers=ours)
    assert handed.status_code == 201, handed.text
    return handed.json()["location"]


async def test_a_page_waits_is_admitted_and_comes_back(shop, rules, queue, show, tmp_path):
    async with browser() as fan:
        back = await wait_and_come_back(fan, shop, "/tickets/7?colour=red", queue, show)
        landed = await fan.get(back)
        assert (landed.status_code, landed.headers["location"]) == (303, f"{shop}/tickets/7?colour=red")
        cookie = landed.headers["set-cookie"]
        assert cookie.startswith("onsale_pass_show=")
        assert "HttpOnly" in cookie
        page = await fan.get(landed.headers["location"])
        assert page.status_code == 200
        assert page.text.startswith("the shop: GET /tickets/7?colour=red for [")
        assert "for []" not in page.text
        posted = await fan.post(f"{shop}/basket", content=b"a=1")
        assert posted.text.startswith("the shop: POST /basket")
        admitted = cookie.partition("=")[2].partition(";")[0]
    log_text = (tmp_path / "access.log").read_text()
    assert "onsale_handover=" in log_text
    assert admitted not in log_text


async def test_a_code_is_good_once_and_only_in_the_browser_that_was_sent(shop, rules, queue, show):
    async with browser() as fan, browser() as thief:
        back = await wait_and_come_back(fan, shop, "/", queue, show)
        await thief.get(f"{shop}/")
        stolen = await thief.get(back)
        assert (stolen.status_code, stolen.headers["location"]) == (303, f"{shop}/")
        assert "set-cookie" not in stolen.headers
        assert "set-cookie" not in (await fan.get(back)).headers, "it was shown once"
        again = await fan.get(f"{shop}/")
        assert again.headers["location"].partition("#")[0].endswith("/e/show")


async def test_an_api_call_gets_a_problem_document(shop, rules):
    async with browser() as fan:
        refused = await fan.get(f"{shop}/api/basket", headers=SCRIPT)
        assert (refused.status_code, refused.headers["content-type"]) == (401, "application/problem+json")
        document = refused.json()
        assert (document["type"], document["status"]) == ("/problems/no-credential", 401)
        assert document["waiting_room"].endswith("/e/show")
        old = {"accept": "text/html", "x-requested-with": "XMLHttpRequest", "sec-fetch-mode": ""}
        async with httpx.AsyncClient(trust_env=False) as plain:
            assert (await plain.get(f"{shop}/", headers={"accept": "text/html"})).status_code == 303
            assert (await plain.get(f"{shop}/")).status_code == 401
            old.pop("sec-fetch-mode")
            assert (await plain.get(f"{shop}/", headers=old)).status_code == 401
        form = await fan.post(f"{shop}/pay", content=b"card=no")
        assert form.status_code == 303
        assert fragment_of(form.headers["location"])["return_to"] == f"{shop}/", "a post is not repeated by a redirect"


async def test_forged_expired_and_foreign_passes_are_refused(shop, rules, queue, show):
    async with browser() as fan:
        for text, status in (
            (admission(), 200),
            (admission(keys="another"), 401),
            (admission(expires_at_s=int(time.time()) - 60), 401),
            (admission(event_id="other"), 403),
            ("e30.e30.e30", 401),
        ):
            api = await fan.get(f"{shop}/api", headers={**SCRIPT, "authorization": f"Bearer {text}"})
            page = await fan.get(f"{shop}/", headers={"cookie": f"onsale_pass_show={text}"})
            assert (api.status_code, page.status_code) == (status, 200 if status == 200 else 303)
            assert status == 200 or api.headers["content-type"] == "application/problem+json"
        good = {"cookie": f"onsale_pass_show={admission()}"}
        foreign = {**good, "authorization": "Basic c2hvcDpzZWNyZXQ="}
        assert (await fan.get(f"{shop}/", headers=foreign)).status_code == 200, (
            "Authorization may be the shop's business"
        )
        await show(queue.rooms["show"].change(epoch=2))
        assert (await fan.get(f"{shop}/", headers=good)).status_code == 303, "the room was reset"


async def test_nobody_is_sent_to_a_site_that_is_not_on_the_list(shop, rules, gateway, queue, show):
    base_url, ours = f"http://127.0.0.1:{gateway}", {"cookie": f"onsale_pass_show={admission()}"}
    async with browser(origin=base_url) as fan:
        elsewhere = await fan.get(f"{shop}/", headers={"host": "evil.example"})
        assert elsewhere.headers["location"] == f"{base_url}/e/show", "without a way back"
        for address in (
            "https://evil.example/", f"{shop}.evil.example/", f"{shop}@evil.example/", "//evil.example",
            f"{shop}\\@evil.example", "javascript:alert(1)", f"{shop}/\r\nx: y", "", f"{shop}0/",
        ):  # fmt: skip
            body = {"return_to": address, "gate": "a" * 24}
            refused = await fan.post(f"{base_url}/events/show/queue/handover", json=body, headers=ours)
            assert (refused.status_code, refused.json()["type"]) == (422, "/problems/return-url-not-allowed"), address
        body = {"return_to": f"{shop}/ok", "gate": "a" * 24}
        assert (await fan.post(f"{base_url}/events/show/queue/handover", json=body, headers=ours)).status_code == 201
        await rules(return_to=[])
        refused = await fan.post(f"{base_url}/events/show/queue/handover", json=body, headers=ours)
        assert refused.status_code == 422


async def test_health_checks_and_assets_pass_however_not_by_a_written_trick(shop, rules):
    async with browser() as fan:
        for path in ("/up", "/assets/site.css", "/assets/deep/logo.svg?v=3"):
            assert (await fan.get(shop + path)).status_code == 200, path
        for path in (
            "/upper",
            "/up/",
            "/assets/../pay",
            "/assets/%2e%2e/pay",
            "/assets//x",
            "/assets/..;/pay",
            "/assets",
        ):
            raw = httpx.URL(shop).copy_with(raw_path=path.encode())
            assert (await fan.get(raw)).status_code == 303, path
        assert (await fan.post(f"{shop}/assets/x")).status_code == 303
        preflight = {"origin": shop, "access-control-request-method": "POST", **SCRIPT}
        assert (await fan.options(f"{shop}/api", headers=preflight)).status_code == 200
        assert (await fan.options(f"{shop}/api", headers=SCRIPT)).status_code == 401


async def test_while_nobody_can_be_called_everybody_passes_for_a_while_if_the_room_says_so(
    shop, rules, queue, show, state, monkeypatch
):
    async with browser() as fan:
        await rules(on_engine_error="admit", admit_on_error_s=30)
        assert (await fan.get(f"{shop}/")).status_code == 303
        await show(queue.rooms["show"].change(ready=False))
        assert (await fan.get(f"{shop}/")).status_code == 200
        assert (await fan.get(f"{shop}/api", headers=SCRIPT)).status_code == 200
        state.forward_auth.fail_open_window._outages["show"].began_s -= 31
        assert (await fan.get(f"{shop}/")).status_code == 303, "the box is over"
        await show(queue.rooms["show"].change(ready=True))
        await fan.get(f"{shop}/")
        await show(queue.rooms["show"].change(ready=False))
        assert (await fan.get(f"{shop}/")).status_code == 303, "flapping opens no new box"
        await show(queue.rooms["show"].change(ready=True))
        await fan.get(f"{shop}/")
        state.forward_auth.fail_open_window._outages["show"].healthy_since_s -= 31
        await fan.get(f"{shop}/")
        await show(queue.rooms["show"].change(ready=False))
        assert (await fan.get(f"{shop}/")).status_code == 200, "well for as long as the box: a new outage"
        await rules(on_engine_error="wait")
        assert (await fan.get(f"{shop}/")).status_code == 303
        assert (await fan.get(f"{shop}/", headers={"cookie": f"onsale_pass_show={admission()}"})).status_code == 200


async def test_rollout_is_stable_and_the_same_for_site_and_waiting_room(shop, rules, queue, gateway):
    await rules(percent=30)
    through = 0
    for _ in range(20):
        async with browser() as fan:
            first = await fan.get(f"{shop}/a?b=c")
            if "/e/show" in first.headers["location"]:
                through += 1
                await fan.post(f"http://127.0.0.1:{gateway}/events/show/queue", json={"from_gate": True})
                holder = queue.rooms["show"].holders[-1]
                second = await fan.get(f"{shop}/")
                assert fragment_of(second.headers["location"])["gate"] == fragment_of(first.headers["location"])["gate"]
                assert not outside("show", holder, 30), "the room makes the same fan wait"
            else:
                marked = first.headers["location"]
                assert marked == f"{shop}/a?b=c&onsale_handover={COOKIE_PROBE}"
                clean = await fan.get(marked)
                assert (clean.status_code, clean.headers["location"]) == (303, f"{shop}/a?b=c")
                assert [(await fan.get(f"{shop}/")).status_code for _ in range(3)] == [200] * 3
                await rules(percent=100)
                assert (await fan.get(f"{shop}/")).status_code == 303
                await rules(percent=30)
    assert 0 < through < 20


async def test_a_browser_without_cookies_is_not_sent_in_circles(shop, rules):
    await rules(percent=0)
    async with browser(cookies=False) as fan:
        marked = await fan.get(f"{shop}/")
        stopped = await fan.get(marked.headers["location"])
        assert stopped.headers["location"].endswith("/e/show")


async def test_a_released_pass_works_at_no_gateway(shop, rules, gateway, queue, redis, state):
    base_url, text = f"http://127.0.0.1:{gateway}", admission()
    async with browser() as fan:
        carries = {"authorization": f"Bearer {text}"}
        assert (await fan.get(f"{shop}/", headers=carries)).status_code == 200
        released = await fan.post(f"{base_url}/gate/release?event=show", headers=carries)
        assert (released.status_code, released.json()) == (200, {"status": "completed"})
        assert queue.rooms["show"].ended == {1: "completed"}
        dead = Revoked(event_id="show", passes=list(queue.rooms["show"].revoked.items()))
        await redis.publish(revoked_channel("show"), dead.model_dump_json())

        async def refused() -> bool:
            return (await fan.get(f"{shop}/", headers=carries)).status_code == 303

        await wait_until(refused)
        again = await fan.post(f"{base_url}/gate/release?event=show", headers=carries)
        assert again.json() == {"status": "completed"}
        wrong = await fan.post(f"{base_url}/gate/release?event=other", headers=carries)
        assert wrong.json()["type"] == "/problems/wrong-event"
        nobody = await fan.post(f"{base_url}/gate/release?event=show")
        assert nobody.json()["type"] == "/problems/no-credential"


async def test_a_gateway_that_started_after_a_revocation_fetches_it(shop, rules, queue, state):
    queue.rooms["show"].revoked["1-0-1-1"] = 2**53
    async with browser() as fan:
        assert (await fan.get(f"{shop}/", headers={"cookie": f"onsale_pass_show={admission()}"})).status_code == 303


async def test_nginx_answers_503_when_the_gateway_is_away(queue, tmp_path, app):
    async with guarded_shop(tmp_path, 9, "show") as address, browser() as fan:
        assert (await fan.get(f"{address}/")).status_code == 503
