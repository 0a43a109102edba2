"""Forward-auth with Traefik, Caddy, Envoy and nginx: the request that each sends, and the answers that it accepts."""

import asyncio
import time

import httpx
import pytest

from features.forward_auth.gateway.request import matches
from tests.gateway.tokens import signed_pass
from tests.support.providers.shop import PAGE, SCRIPT

SITE = "https://shop.example"
RULES = {"gate": {"waiting_room": "https://tickets.example", "return_to": [SITE], "let_through": ["/up", "/assets/*"]}}
PROXIES = ["traefik", "caddy", "envoy"]


@pytest.fixture(autouse=True)
async def room(queue):
    await queue.open(**RULES)


class Proxy:
    """Sends the check of this kind of proxy, with the client's method and address where that kind puts them."""

    def __init__(self, kind: str, client) -> None:
        self.kind, self.client, self.event = kind, client, "show"
        client.headers.clear()

    async def check(self, method: str, uri: str, **head: str):
        headers = {"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.7", "accept-encoding": "gzip", **head}
        if self.kind == "envoy":  # the request's own method, path behind the prefix, the site's own Host
            headers |= {"host": "shop.example", "x-onsale-event": self.event, "content-length": "0"}
            return await self.client.request(method, f"/gate/envoy/check{uri}", headers=headers)
        headers |= {"x-forwarded-method": method, "x-forwarded-uri": uri, "x-forwarded-host": "shop.example"}
        if self.kind == "caddy":
            headers |= {"host": "shop.example"}
        return await self.client.get(f"/gate/{self.kind}/check?event={self.event}", headers=headers)


@pytest.fixture(params=PROXIES)
def proxy(request, fan) -> Proxy:
    return Proxy(request.param, fan)


async def test_an_admitted_request_gets_200_and_the_holder(proxy):
    for method, head in (("GET", PAGE), ("POST", SCRIPT), ("DELETE", SCRIPT)):
        for credential in (
            {"cookie": f"__Host-onsale_pass_show={signed_pass()}"},
            {"authorization": f"Bearer {signed_pass()}"},
        ):
            admitted = await proxy.check(method, "/a?b=c", **credential, **head)
            assert (admitted.status_code, admitted.headers["x-onsale-holder"]) == (200, "holder")
            assert admitted.headers["cache-control"] == "no-store"
            assert not admitted.content


async def test_a_page_without_a_pass_is_redirected_and_gets_a_cookie(proxy):
    refused = await proxy.check("GET", "/a/%C3%A9?b=c&d", **PAGE)
    assert refused.status_code == 303
    room_url, _, fragment = refused.headers["location"].partition("#")
    assert room_url == "https://tickets.example/e/show"
    assert fragment.startswith("return_to=https%3A%2F%2Fshop.example%2Fa%2F%25C3%25A9%3Fb%3Dc%26d&gate=")
    cookie, *flags = refused.headers["set-cookie"].split("; ")
    assert cookie.startswith("__Host-onsale_gate_show=")
    assert {"HttpOnly", "Secure", "SameSite=Lax", "Path=/"} < set(flags)
    assert "x-onsale-location" not in refused.headers
    known = await proxy.check("GET", "/", cookie=cookie, **PAGE)
    assert "set-cookie" not in known.headers


async def test_an_api_call_without_a_pass_gets_a_problem(proxy):
    refused = await proxy.check("POST", "/api", **SCRIPT)
    assert (refused.status_code, refused.headers["content-type"]) == (401, "application/problem+json")
    assert refused.json()["waiting_room"] == "https://tickets.example/e/show"
    assert refused.json()["request_id"]
    other = await proxy.check("POST", "/api", authorization=f"Bearer {signed_pass(event_id='other')}", **SCRIPT)
    assert (other.status_code, other.json()["type"]) == (403, "/problems/wrong-event")


async def test_a_handover_code_is_exchanged_for_a_pass_cookie(proxy, fan):
    redirect = await proxy.check("GET", "/a?b=c", **PAGE)
    browser_cookie = redirect.headers["set-cookie"].split(";")[0]
    browser_id = redirect.headers["location"].rpartition("gate=")[2]
    text = signed_pass()
    body = {"return_to": f"{SITE}/a?b=c", "gate": browser_id}
    handover = await fan.post("/events/show/queue/handover", json=body, headers={"authorization": f"Bearer {text}"})
    uri = handover.json()["location"].removeprefix(SITE)
    assert uri.startswith("/a?b=c&onsale_handover=")
    arrival = await proxy.check("GET", uri, cookie=browser_cookie, **PAGE)
    assert (arrival.status_code, arrival.headers["location"]) == (303, f"{SITE}/a?b=c")
    cookie, *flags = arrival.headers["set-cookie"].split("; ")
    assert cookie == f"__Host-onsale_pass_show={text}"
    assert {"HttpOnly", "Secure", "SameSite=Lax"} < set(flags)
    assert (await proxy.check("GET", "/a?b=c", cookie=cookie, **PAGE)).status_code == 200


async def test_the_return_links_of_a_fan_are_limited(fan):
    body = {"return_to": f"{SITE}/", "gate": "g" * 24}

    async def ask(holder: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {signed_pass(holder=holder)}"}
        return await fan.post("/events/show/queue/handover", json=body, headers=headers)

    answers = await asyncio.gather(*(ask("greedy") for _ in range(30)))
    assert sorted(answer.status_code for answer in answers) == [201] * 20 + [429] * 10
    assert int(next(answer for answer in answers if answer.status_code == 429).headers["retry-after"]) <= 3
    assert (await ask("another")).status_code == 201


async def test_the_code_of_a_pass_that_was_released_meanwhile_is_spent(proxy, fan, forward_auth):
    redirect = await proxy.check("GET", "/", **PAGE)
    browser_cookie = redirect.headers["set-cookie"].split(";")[0]
    body = {"return_to": f"{SITE}/", "gate": redirect.headers["location"].rpartition("gate=")[2]}
    headers = {"authorization": f"Bearer {signed_pass()}"}
    handover = await fan.post("/events/show/queue/handover", json=body, headers=headers)
    forward_auth.revoked_passes._events["show"].passes["1-0-1-1"] = 2**53
    uri = handover.json()["location"].removeprefix(SITE)
    arrival = await proxy.check("GET", uri, cookie=browser_cookie, **PAGE)
    assert (arrival.headers["x-onsale-verdict"], arrival.headers.get("set-cookie")) == ("code-spent", None)


async def test_only_the_paths_of_the_rules_pass_without_a_credential(proxy):
    assert (await proxy.check("GET", "/up", **SCRIPT)).status_code == 200
    assert (await proxy.check("GET", "/assets/a.css?v=1", **SCRIPT)).status_code == 200
    for path in ("/assets/..%2fpay", "/assets/%2e%2e/pay", "/up%00"):
        assert (await proxy.check("GET", path, **SCRIPT)).status_code == 401, path
    assert (await proxy.check("POST", "/assets/a.css", **SCRIPT)).status_code == 401


async def test_a_preflight_request_passes_only_for_the_sites_of_the_rules(proxy):
    preflight = {"access-control-request-method": "POST", **SCRIPT}
    assert (await proxy.check("OPTIONS", "/api", origin=SITE, **preflight)).status_code == 200
    for origin in ({"origin": "https://evil.example"}, {"origin": "null"}, {}):
        assert (await proxy.check("OPTIONS", "/api", **origin, **preflight)).status_code == 401
    assert (await proxy.check("OPTIONS", "/api", origin=SITE, **SCRIPT)).status_code == 401


async def test_no_redirect_goes_to_a_host_that_the_request_names(fan, queue):
    await queue.open("own", rollout_percent=50)
    headers = {"x-forwarded-host": "evil.example", "x-forwarded-uri": "/a", **PAGE}
    refused = await fan.get("/gate/traefik/check?event=own", headers=headers)
    assert (refused.status_code, refused.headers["location"]) in ((303, "/e/own"), (303, "/a?onsale_handover=here"))
    with_used_code = {
        **headers,
        "x-forwarded-uri": "//evil.example/a?onsale_handover=x",
        "cookie": "onsale_gate_own=" + "g" * 22,
    }
    back = await fan.get("/gate/traefik/check?event=own", headers=with_used_code)
    assert (back.status_code, back.headers["location"]) == (303, "/.//evil.example/a")
    api_call = await fan.get("/gate/traefik/check?event=own", headers={"x-forwarded-host": "evil.example", **SCRIPT})
    assert "evil.example" not in api_call.text


async def test_requests_for_an_unknown_event_are_refused(proxy):
    proxy.event = "nothing"
    refused = await proxy.check("GET", "/", **PAGE)
    assert (refused.status_code, refused.json()["type"]) == (404, "/problems/unknown-event")


async def test_the_event_of_envoy_comes_from_its_configuration(fan, queue):
    await queue.open("elsewhere", rollout_percent=0)
    head = {"host": "shop.example", "x-onsale-event": "show", **SCRIPT}
    assert (await fan.get("/gate/envoy/check/api?event=elsewhere", headers=head)).status_code == 401
    del head["x-onsale-event"]
    assert (await fan.get("/gate/envoy/check/api?event=elsewhere", headers=head)).status_code == 400


async def test_a_malformed_forwarded_request_is_refused(fan):
    for head in (
        {"x-forwarded-host": "shop.example/../x"}, {"x-forwarded-uri": "//é"}, {"x-forwarded-uri": "shop"},
        {"x-forwarded-method": "get it"}, {"x-forwarded-uri": "/" + "a" * 5000},
    ):  # fmt: skip
        headers = {name: value.encode("latin-1") for name, value in head.items()}
        refused = await fan.get("/gate/traefik/check?event=show", headers=headers)
        assert (refused.status_code, refused.json()["type"]) == (400, "/problems/malformed-request"), head


async def test_nginx_gets_only_the_statuses_that_it_passes_on(fan, queue):
    check = "/gate/nginx/check?event="
    refused = await fan.get(f"{check}show", headers={**PAGE, "x-original-uri": "/a"})
    assert (refused.status_code, refused.headers["x-onsale-location"][:30]) == (401, "https://tickets.example/e/show")
    assert "location" not in refused.headers
    unknown = await fan.get(f"{check}nothing", headers={**PAGE, "x-original-uri": "/a"})
    assert (unknown.status_code, unknown.json()["status"]) == (403, 403)
    assert unknown.headers["x-onsale-problem"] == unknown.text
    for uri in ("no path", "/" + "a" * 5000):
        assert (await fan.get(f"{check}show", headers={"x-original-uri": uri})).status_code == 401


async def test_only_a_valid_pass_of_this_event_and_epoch_is_admitted(fan, queue, publish_frame):
    check = "/gate/nginx/check?event=show"
    assert (await fan.get(check)).status_code == 401
    for text, status in (
        (signed_pass(), 200),
        (signed_pass(event_id="other"), 403),
        (signed_pass(expires_at_s=int(time.time()) - 60), 401),
        (signed_pass(keys="another"), 401),
        ("nonsense", 401),
    ):
        answer = await fan.get(check, headers={"authorization": f"Bearer {text}"})
        assert (answer.status_code, "x-onsale-holder" in answer.headers) == (status, status == 200)
    by_cookie = await fan.get(check, headers={"cookie": f"onsale_pass_show={signed_pass()}"})
    assert (by_cookie.status_code, by_cookie.headers["x-onsale-holder"]) == (200, "holder")
    assert (await fan.get("/gate/apache/check?event=show")).status_code == 422
    await publish_frame(await queue.reset())
    before_reset = await fan.get(check, headers={"authorization": f"Bearer {signed_pass()}"})
    assert before_reset.status_code == 401
    assert not {"/status", "/claims", "/leaves", "/releases"} & set(queue.calls)


def test_path_patterns_match():
    matching = [("/a", "/a"), ("/a/*", "/a/"), ("/a/*", "/a/b/c"), ("/*.css", "/x/y.css"),
                ("/*/static/*", "/de/static/x"), ("/a*b*c", "/a-b-b-c"), ("/*", "/")]  # fmt: skip
    other = [("/a", "/a/"), ("/a/*", "/a"), ("/*.css", "/y.css2"), ("/a*ba", "/aba-"), ("/aba*aba", "/aba"),
             ("/*/static/*", "/static"), ("/A", "/a")]  # fmt: skip
    assert [pair for pair in matching if not matches(*pair)] == []
    assert [pair for pair in other if matches(*pair)] == []


async def test_a_return_link_leads_to_a_site_of_the_rules_only(fan):
    headers = {"authorization": f"Bearer {signed_pass()}"}
    for return_to, allowed in (
        (f"{SITE}/a", True), (f"{SITE}.evil.example/", False), ("https://evil.example/", False),
        (f"{SITE}@evil.example/", False), (f"{SITE}:444/", False), (f"{SITE}\\@evil.example/", False),
    ):  # fmt: skip
        body = {"return_to": return_to, "gate": "g" * 24}
        answer = await fan.post("/events/show/queue/handover", json=body, headers=headers)
        assert (answer.status_code == 201) is allowed, return_to


async def test_a_handover_code_is_good_for_one_browser_at_one_site(proxy, fan):
    async def browser() -> tuple[str, str]:
        redirect = await proxy.check("GET", "/", **PAGE)
        return redirect.headers["set-cookie"].split(";")[0], redirect.headers["location"].rpartition("gate=")[2]

    async def arrive(uri: str, cookie: str) -> tuple[str, bool]:
        arrival = await proxy.check("GET", uri, cookie=cookie, **PAGE)
        return arrival.headers["x-onsale-verdict"], "onsale_pass" in arrival.headers.get("set-cookie", "")

    async def new_uri() -> str:
        body, headers = {"return_to": f"{SITE}/", "gate": browser_id}, {"authorization": f"Bearer {signed_pass()}"}
        made = await fan.post("/events/show/queue/handover", json=body, headers=headers)
        return made.json()["location"].removeprefix(SITE)

    (cookie, browser_id), (of_another, _) = await browser(), await browser()
    assert await arrive(await new_uri(), of_another) == ("code-spent", False)
    uri = await new_uri()
    assert [await arrive(uri, cookie) for _ in range(2)] == [("handed-over", True), ("code-spent", False)]
