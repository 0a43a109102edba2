"""Pages come in the language of their address, which the browser keeps, else of the cookie, else of the settings; they
have a strict content security policy. The `type` of every problem is the address of its description, as HTML and JSON.
"""

import json
import re

import httpx
import pytest

from features.pages.gateway.documents import BUILT, PAGES
from services.gateway.app import create_app
from shared.web.app import public
from shared.web.built_files import assets
from shared.words.words import LANGUAGES, words
from tools.problem_catalogue import catalogue

PATHS = ("/", "/e/show", "/o/ABCDEFGH12")


def language_of(page):
    [language] = re.findall(r'<html lang="(\w+)" dir="(?:ltr|rtl)"', page.text)
    assert page.headers["content-language"] == language
    assert {"accept-language", "cookie"} <= set(page.headers["vary"].split(", "))
    return language


@pytest.mark.parametrize("path", PATHS)
async def test_the_address_is_before_the_cookie_and_the_cookie_before_the_settings(fan, queue, path):
    await queue.open()
    german_settings = {"accept-language": "de-CH, en;q=0.5"}
    assert language_of(await fan.get(path)) == "en"
    assert language_of(await fan.get(path, headers=german_settings)) == "de"
    asked = await fan.get(f"{path}?lang=en", headers=german_settings)
    assert language_of(asked) == "en"
    assert any(each.startswith("onsale_lang=en; ") for each in asked.headers.get_list("set-cookie"))
    assert asked.headers["cache-control"] == "private, no-cache"
    assert language_of(await fan.get(path, headers=german_settings)) == "en", "the cookie"
    assert language_of(await fan.get(f"{path}?lang=de")) == "de"


@pytest.mark.parametrize("unknown", ["xx", "", "de%3B", "../en"])
async def test_an_unknown_language_is_neither_served_nor_kept(fan, queue, unknown):
    await queue.open()
    page = await fan.get("/", params={"lang": unknown}, headers={"cookie": f"onsale_lang={unknown}"})
    assert language_of(page) == "en"
    assert "set-cookie" not in page.headers


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("path", "heading", "advice"), [
    ("/nowhere", "page_not_found", "page_check_address"), ("/o/short", "page_not_found", "page_check_address"),
    ("/e/none/more", "page_not_found", "page_check_address"),
])  # fmt: skip
async def test_an_error_page_is_in_the_language_of_its_reader(fan, language, path, heading, advice):
    page = await fan.get(f"{path}?lang={language}", headers={"accept": "text/html", "accept-language": "xx"})
    text = words(language)
    assert (page.status_code, language_of(page)) == (404, language)
    for shown in (heading, advice, "all_events"):
        assert text(shown) in page.text
    program = await fan.get(f"{path}?lang={language}")
    assert program.headers["content-type"] == "application/problem+json", "documents for programs stay English"
    assert language == "en" or program.json()["detail"] not in page.text


async def test_each_language_has_an_etag_of_its_own(fan):
    german = await fan.get("/", headers={"accept-language": "de"})
    etag = {"if-none-match": german.headers["etag"]}
    assert (await fan.get("/", headers={"accept-language": "de", **etag})).status_code == 304
    assert (await fan.get("/", headers={"accept-language": "en", **etag})).status_code == 200


async def test_the_menu_leads_to_every_language_and_marks_the_present_one(fan):
    page = (await fan.get("/")).text
    menu = re.findall(r'<a href="\?lang=(\w+)" lang="(\w+)" hreflang="(\w+)" (aria-current="true")?>([^<]+)</a>', page)
    assert [(one[:3], one[4]) for one in menu] == [((each,) * 3, words(each).name) for each in LANGUAGES]
    assert [one[0] for one in menu if one[3]] == ["en"]


# -- what browsers may do ----------------------------------------------------------------------------------------------

PATH = "/events/show/queue"


async def test_fan_pages_have_a_strict_content_security_policy(fan, queue):
    await queue.open()
    for path, content_type in (
        ("/", "text/html"),
        ("/e/show", "text/html"),
        ("/o/ABCDEFGH12", "text/html"),
        (f"/static/{assets(BUILT)['styles.css'].name}", "text/css"),
        ("/favicon.ico", "image/svg+xml"),
    ):
        page = await fan.get(path)
        assert (page.status_code, page.headers["content-type"].split(";")[0]) == (200, content_type)
        policy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
        assert page.headers["content-security-policy"] == policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "same-origin"
        again = await fan.get(path, headers={"if-none-match": page.headers.get("etag", "none")})
        is_immutable = "immutable" in page.headers["cache-control"]
        assert is_immutable == path.startswith("/static/")
        assert again.status_code == 304 or is_immutable or path == "/favicon.ico", path
    for path in ("/static/nothing.js", "/static/../app.py", "/static/%2e%2e/%2e%2e/app.py", "/e/-bad-"):
        refused = await fan.get(path)
        assert refused.status_code in {404, 422}
        assert refused.headers["content-type"] == "application/problem+json"


async def test_fast_routes_are_in_the_openapi_document(fan):
    document = (await fan.get("/openapi.json")).json()
    assert set(document["paths"][PATH.replace("show", "{event_id}")]) == {"get", "post", "delete"}
    assert "/events/{event_id}/queue/status" in document["paths"]
    properties = document["components"]["schemas"]["PassAnswer"]["properties"]
    assert set(properties) == {"pass", "expires_at", "checkout_key", "status"}


# -- problems ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def gateway() -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(public(create_app())), base_url="http://gateway")


def test_the_problem_catalogue_matches_the_code() -> None:
    assert json.loads((PAGES / "problems.json").read_text()) == catalogue(), "make api-documents"


async def test_every_problem_has_an_html_page_and_a_json_document(gateway: httpx.AsyncClient) -> None:
    listed = (await gateway.get("/problems")).json()["problems"]
    assert len(listed) >= 80
    page = (await gateway.get("/problems", headers={"accept": "text/html"})).text
    for entry in listed:
        path = f"/problems/{entry['slug']}"
        assert f'href="{path}"' in page
        document = (await gateway.get(path)).json()
        assert (document["type"], document["title"], document["status"]) == (path, entry["title"], entry["status"])
        assert document["advice"]
        assert "What to do" in (await gateway.get(path, headers={"accept": "text/html,*/*"})).text


async def test_the_type_of_a_problem_response_is_the_address_of_its_page(gateway: httpx.AsyncClient) -> None:
    refused = await gateway.get("/problems/nothing-like-this")
    assert refused.status_code == 404
    assert (await gateway.get(refused.json()["type"])).json()["title"] == refused.json()["title"]
