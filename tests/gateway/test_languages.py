"""A page comes in the language of its address, which the browser keeps, else of the cookie, else of the settings."""

import re

import pytest

from shared.words.words import LANGUAGES, words

PAGES = ("/", "/e/show", "/o/ABCDEFGH12")


def language_of(page):
    [language] = re.findall(r'<html lang="(\w+)" dir="(?:ltr|rtl)"', page.text)
    assert page.headers["content-language"] == language
    assert {"accept-language", "cookie"} <= set(page.headers["vary"].split(", "))
    return language


@pytest.mark.parametrize("path", PAGES)
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
