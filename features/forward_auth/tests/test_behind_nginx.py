"""Forward-auth in front of another site's shop, by a real nginx with the configuration of the guide."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from features.forward_auth.gateway.decision import COOKIE_PROBE
from shared.rules.shares import within
from shared.runtime.clock import now_ms
from shared.web.app import public
from tests.gateway.conftest import gateway_client
from tests.gateway.tokens import signed_pass
from tests.support.programs import needs
from tests.support.providers.shop import ALLOWED_PATHS, SCRIPT, TRICKY_PATHS, browser, get_as_written, guarded_shop
from tests.support.running.serving import serving
from tests.support.wait import wait_until

pytestmark = needs("nginx")


@pytest.fixture
async def gateway(app) -> AsyncIterator[int]:
    async with serving(public(app)) as port:
        yield port


def gate_of(gateway: int, shop: str) -> dict[str, Any]:
    """Rules of forward-auth for this shop."""
    waiting_room = f"http://127.0.0.1:{gateway}"
    return {"waiting_room": waiting_room, "return_to": [shop], "let_through": ["/assets/*", "/up"]}


@pytest.fixture
async def shop(gateway, queue, tmp_path) -> AsyncIterator[str]:
    """The shop's address, the only one to which the room's rules allow a return."""
    async with guarded_shop(tmp_path, gateway, "show") as address:
        await queue.open(gate=gate_of(gateway, address))
        yield address


@pytest.fixture
async def rules(gateway, shop, queue, publish_frame):
    """Changes the room's options and waits until the gateway has received them."""

    gate = gate_of(gateway, shop)

    async def change(percent: float = 100, **changes) -> None:
        gate.update(changes)
        await publish_frame(await queue.configure(rollout_percent=percent, gate=gate))

    await change()
    return change


@pytest.fixture
def outage(queue, publish_frame):
    """Publishes that the line is not ready, or that it is again."""

    async def change(*, ready: bool) -> None:
        frame = await queue.tick()
        await publish_frame(frame.model_copy(update={"ready": ready, "version": max(frame.version + 1, now_ms())}))

    return change


def fragment_of(location: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(location).fragment).items()}


async def return_link_after_waiting(fan: httpx.AsyncClient, shop: str, page: str, queue, publish_frame) -> str:
    """Does what browser and fan page do: redirect to the waiting room, join, call, claim; returns the return link."""
    redirect = await fan.get(shop + page)
    assert redirect.status_code == 303, redirect.text
    room_page = urlsplit(redirect.headers["location"])
    base_url = f"{room_page.scheme}://{room_page.netloc}"
    assert room_page.path == "/e/show"
    assert not room_page.query
    return_values = fragment_of(redirect.headers["location"])
    assert return_values["return_to"] == shop + page
    assert (await fan.get(f"{base_url}{room_page.path}")).status_code == 200
    headers = {"origin": base_url}
    joined = await fan.post(f"{base_url}/events/show/queue", headers=headers, json={"from_gate": True})
    assert joined.status_code == 201, joined.text
    early = await fan.post(f"{base_url}/events/show/queue/handover", json=return_values, headers=headers)
    assert early.status_code == 401, "a fan who waits has no pass"
    await publish_frame(await queue.call())
    assert (await fan.post(f"{base_url}/events/show/queue/pass", headers=headers)).status_code == 200
    handover = await fan.post(f"{base_url}/events/show/queue/handover", json=return_values, headers=headers)
    assert handover.status_code == 201, handover.text
    return handover.json()["location"]


async def test_a_fan_is_sent_to_the_room_admitted_and_returns_to_the_page(shop, rules, queue, publish_frame, tmp_path):
    async with browser() as fan:
        back = await return_link_after_waiting(fan, shop, "/tickets/7?colour=red", queue, publish_frame)
        arrival = await fan.get(back)
        assert (arrival.status_code, arrival.headers["location"]) == (303, f"{shop}/tickets/7?colour=red")
        cookie = arrival.headers["set-cookie"]
        assert cookie.startswith("onsale_pass_show=")
        assert "HttpOnly" in cookie
        page = await fan.get(arrival.headers["location"])
        assert page.status_code == 200
        assert page.text.startswith("the shop: GET /tickets/7?colour=red for [")
        assert "for []" not in page.text
        posted = await fan.post(f"{shop}/basket", content=b"a=1")
        assert posted.text.startswith("the shop: POST /basket")
        admitted = cookie.partition("=")[2].partition(";")[0]
    log_text = (tmp_path / "access.log").read_text()
    assert "onsale_handover=" in log_text
    assert admitted not in log_text


async def test_a_handover_code_works_once_and_only_in_the_redirected_browser(shop, rules, queue, publish_frame):
    async with browser() as fan, browser() as thief:
        back = await return_link_after_waiting(fan, shop, "/", queue, publish_frame)
        await thief.get(f"{shop}/")
        stolen = await thief.get(back)
        assert (stolen.status_code, stolen.headers["location"]) == (303, f"{shop}/")
        assert "set-cookie" not in stolen.headers
        assert "set-cookie" not in (await fan.get(back)).headers, "the code was used"
        again = await fan.get(f"{shop}/")
        assert again.headers["location"].partition("#")[0].endswith("/e/show")


async def test_an_api_call_gets_a_problem_document(shop, rules):
    async with browser() as fan:
        refused = await fan.get(f"{shop}/api/basket", headers=SCRIPT)
        assert (refused.status_code, refused.headers["content-type"]) == (401, "application/problem+json")
        document = refused.json()
        assert (document["type"], document["status"]) == ("/problems/no-credential", 401)
        assert document["waiting_room"].endswith("/e/show")
        legacy_script = {"accept": "text/html", "x-requested-with": "XMLHttpRequest"}
        async with httpx.AsyncClient(trust_env=False) as plain:
            assert (await plain.get(f"{shop}/", headers={"accept": "text/html"})).status_code == 303
            assert (await plain.get(f"{shop}/")).status_code == 401
            assert (await plain.get(f"{shop}/", headers=legacy_script)).status_code == 401
        form = await fan.post(f"{shop}/pay", content=b"card=no")
        assert form.status_code == 303
        assert fragment_of(form.headers["location"])["return_to"] == f"{shop}/", (
            "the fan returns to a page, not to the form's target"
        )


async def test_forged_and_foreign_passes_are_refused(shop, rules, queue, publish_frame):
    async with browser() as fan:
        for text, status in (
            (signed_pass(), 200),
            (signed_pass(keys="another"), 401),
            (signed_pass(event_id="other"), 403),
        ):
            api = await fan.get(f"{shop}/api", headers={**SCRIPT, "authorization": f"Bearer {text}"})
            page = await fan.get(f"{shop}/", headers={"cookie": f"onsale_pass_show={text}"})
            assert (api.status_code, page.status_code) == (status, 200 if status == 200 else 303)
            assert status == 200 or api.headers["content-type"] == "application/problem+json"
        good = {"cookie": f"onsale_pass_show={signed_pass()}"}
        foreign = {**good, "authorization": "Basic c2hvcDpzZWNyZXQ="}
        assert (await fan.get(f"{shop}/", headers=foreign)).status_code == 200, (
            "the shop may use Authorization for itself"
        )
        await publish_frame(await queue.reset())
        assert (await fan.get(f"{shop}/", headers=good)).status_code == 303, "the room was reset"


async def test_a_fan_returns_only_to_the_sites_of_the_rules(shop, rules, gateway, queue, publish_frame):
    base_url, headers = f"http://127.0.0.1:{gateway}", {"cookie": f"onsale_pass_show={signed_pass()}"}
    async with browser(origin=base_url) as fan:
        redirect = await fan.get(f"{shop}/", headers={"host": "evil.example"})
        assert redirect.headers["location"] == f"{base_url}/e/show", "without a return address"
        for address in (
            "https://evil.example/", f"{shop}.evil.example/", f"{shop}@evil.example/", "//evil.example",
            f"{shop}\\@evil.example", "javascript:alert(1)", f"{shop}/\r\nx: y", "", f"{shop}0/",
        ):  # fmt: skip
            body = {"return_to": address, "gate": "a" * 24}
            refused = await fan.post(f"{base_url}/events/show/queue/handover", json=body, headers=headers)
            assert (refused.status_code, refused.json()["type"]) == (422, "/problems/return-url-not-allowed"), address
        body = {"return_to": f"{shop}/ok", "gate": "a" * 24}
        assert (await fan.post(f"{base_url}/events/show/queue/handover", json=body, headers=headers)).status_code == 201
        await rules(return_to=[])
        refused = await fan.post(f"{base_url}/events/show/queue/handover", json=body, headers=headers)
        assert refused.status_code == 422


async def test_allowed_paths_pass_and_tricky_spellings_of_them_do_not(shop, rules):
    async with browser() as fan:
        for path in ALLOWED_PATHS:
            assert (await fan.get(shop + path)).status_code == 200, path
        for path in TRICKY_PATHS:
            assert (await get_as_written(shop, path)).status_code == 303, path
        assert (await fan.post(f"{shop}/assets/x")).status_code == 303
        preflight = {"origin": shop, "access-control-request-method": "POST", **SCRIPT}
        assert (await fan.options(f"{shop}/api", headers=preflight)).status_code == 200
        assert (await fan.options(f"{shop}/api", headers=SCRIPT)).status_code == 401


async def test_in_an_outage_forward_auth_admits_everybody_for_a_limited_time_if_configured(
    shop, rules, outage, forward_auth
):
    async with browser() as fan:
        await rules(on_engine_error="admit", admit_on_error_s=30)
        assert (await fan.get(f"{shop}/")).status_code == 303
        await outage(ready=False)
        assert (await fan.get(f"{shop}/")).status_code == 200
        assert (await fan.get(f"{shop}/api", headers=SCRIPT)).status_code == 200
        forward_auth._outages["show"].began_s -= 31
        assert (await fan.get(f"{shop}/")).status_code == 303, "the time limit is over"
        await outage(ready=True)
        for _ in range(2):
            await fan.get(f"{shop}/")
        await outage(ready=False)
        assert (await fan.get(f"{shop}/")).status_code == 303, "a short recovery starts no new time limit"
        recovery_s = forward_auth._outages["show"].healthy_since_s
        assert recovery_s is None, "short recoveries do not add up"
        await outage(ready=True)
        await fan.get(f"{shop}/")
        forward_auth._outages["show"].healthy_since_s -= 31
        await fan.get(f"{shop}/")
        await outage(ready=False)
        assert (await fan.get(f"{shop}/")).status_code == 200, "after a long recovery it is a new outage"
        await rules(on_engine_error="wait")
        assert (await fan.get(f"{shop}/")).status_code == 303
        assert (await fan.get(f"{shop}/", headers={"cookie": f"onsale_pass_show={signed_pass()}"})).status_code == 200


async def test_invented_events_do_not_restart_the_time_limit_of_an_outage(
    gateway, shop, rules, queue, outage, forward_auth
):
    async with browser() as fan:
        await rules(on_engine_error="admit", admit_on_error_s=30)
        await outage(ready=False)
        queue.away = True
        assert (await fan.get(f"{shop}/")).status_code == 200
        outages = forward_auth._outages
        outages["show"].began_s -= 31
        check = f"http://127.0.0.1:{gateway}/gate/nginx/check?event="
        assert {(await fan.get(f"{check}invented-{n}")).status_code for n in range(20)} == {401}
        assert list(outages) == ["show"]
        assert (await fan.get(f"{shop}/")).status_code == 303


async def test_the_rollout_decision_is_stable_and_the_same_at_site_and_waiting_room(shop, rules, queue, gateway):
    await rules(percent=30)
    waited = fans = 0
    while fans < 12 or not 0 < waited < fans:
        fans += 1
        assert fans < 100, "all waited, or none"
        async with browser() as fan:
            first = await fan.get(f"{shop}/a?b=c")
            if "/e/show" in first.headers["location"]:
                waited += 1
                await fan.post(f"http://127.0.0.1:{gateway}/events/show/queue", json={"from_gate": True})
                holder = (await queue.holders())[-1]
                second = await fan.get(f"{shop}/")
                assert fragment_of(second.headers["location"])["gate"] == fragment_of(first.headers["location"])["gate"]
                assert within("rollout", "show", holder, 30), "the room makes the same fan wait"
            else:
                with_probe = first.headers["location"]
                assert with_probe == f"{shop}/a?b=c&onsale_handover={COOKIE_PROBE}"
                without_probe = await fan.get(with_probe)
                assert (without_probe.status_code, without_probe.headers["location"]) == (303, f"{shop}/a?b=c")
                assert [(await fan.get(f"{shop}/")).status_code for _ in range(3)] == [200] * 3
                await rules(percent=100)
                assert (await fan.get(f"{shop}/")).status_code == 303
                await rules(percent=30)


async def test_a_browser_without_cookies_is_not_redirected_in_a_loop(shop, rules):
    await rules(percent=0)
    async with browser(cookies=False) as fan:
        with_probe = await fan.get(f"{shop}/")
        second = await fan.get(with_probe.headers["location"])
        assert second.headers["location"].endswith("/e/show")


async def test_a_released_pass_is_refused_at_every_gateway(shop, rules, gateway, queue):
    base_url, text = f"http://127.0.0.1:{gateway}", (await queue.admit("holder")).admission
    async with browser() as fan:
        headers = {"authorization": f"Bearer {text}"}
        assert (await fan.get(f"{shop}/", headers=headers)).status_code == 200
        released = await fan.post(f"{base_url}/gate/release?event=show", headers=headers)
        assert (released.status_code, released.json()) == (200, {"status": "completed"})
        assert await queue.ended() == {1: "completed"}

        async def refused() -> bool:
            return (await fan.get(f"{shop}/", headers=headers)).status_code == 303

        await wait_until(refused)
        again = await fan.post(f"{base_url}/gate/release?event=show", headers=headers)
        assert again.json() == {"status": "completed"}
        wrong_event = await fan.post(f"{base_url}/gate/release?event=other", headers=headers)
        assert wrong_event.json()["type"] == "/problems/wrong-event"
        without_pass = await fan.post(f"{base_url}/gate/release?event=show")
        assert without_pass.json()["type"] == "/problems/no-credential"


async def test_a_gateway_that_starts_after_a_revocation_fetches_it(queue, settings):
    await queue.open()
    released = {"cookie": f"onsale_pass_show={(await queue.admit('holder')).admission}", "x-original-uri": "/"}
    await queue.release(1, "holder")
    async with gateway_client(settings) as late:
        assert (await late.get("/gate/nginx/check?event=show", headers=released)).status_code == 401
    assert queue.calls["/rooms/revoked"] == 1


async def test_nginx_answers_503_when_the_gateway_is_away(queue, tmp_path, app):
    async with guarded_shop(tmp_path, 9, "show") as address, browser() as fan:
        assert (await fan.get(f"{address}/")).status_code == 503
