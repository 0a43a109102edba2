"""An event's page brings the answers that its script would ask for, the list of events is complete in the first HTML,
and they come with less rather than late; what goes with the page: structured data, manifest, calendar file, and the
button for other sites.
"""

import asyncio
import json
import re
from typing import Any

import httpx
import pytest

from features.pages.gateway.api import calendar_entry
from features.pages.gateway.documents import BUILT, EventPages
from features.pages.gateway.plain_pages import FanPages
from features.pages.tests.shop import Shop
from shared.contracts.catalogue import EventDetails
from shared.errors.problems import Overloaded, UnknownEvent
from shared.runtime.clock import to_datetime
from shared.web.built_files import assets
from shared.web.calendar_file import calendar_file
from shared.words.words import LANGUAGES
from tests.gateway.frames import START_MS, lanes, new_frame

PATH = "/events/show"


@pytest.fixture
async def events(pages: FanPages, shop: Shop) -> EventPages:
    await pages.gateway.line_cache.line("show")
    return pages.events


async def html(events: EventPages, language: str = "en", *, may_have_place: bool = True) -> str:
    document = await events.page("show", language, may_have_place=may_have_place)
    return document.body.decode()


def facts(text: str) -> dict[str, Any]:
    [found] = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', text)
    brought: dict[str, Any] = json.loads(found)
    return brought


async def test_the_page_brings_what_its_script_would_ask_first(events: EventPages) -> None:
    text = await html(events)
    brought = facts(text)
    assert set(brought) == {PATH, f"{PATH}/queue", f"{PATH}/sections", "/orders/events/show/prices?each=100&each=300"}
    assert brought["/orders/events/show/prices?each=100&each=300"]["all_in"] == {"100": 150, "300": 350}
    assert brought[f"{PATH}/queue"]["state"] == "open"
    assert "&lt;i&gt;Show&lt;/i&gt;" in text
    assert "<i>Show" not in text, "neither in the page nor in the facts"
    assert "Sat, 1 June 2030" in text


async def test_who_sent_no_token_is_told_that_there_is_no_place(events: EventPages) -> None:
    assert facts(await html(events, may_have_place=False))[f"{PATH}/queue/status"] is None
    assert f"{PATH}/queue/status" not in facts(await html(events, may_have_place=True))


async def test_a_thousand_readers_cost_one_question(events: EventPages, shop: Shop) -> None:
    read = await asyncio.gather(*(events.page("show", "en", may_have_place=False) for _ in range(1000)))
    assert (len(set(map(id, read))), shop.asked) == (1, 1)
    await events.page("show", "de", may_have_place=True)
    assert shop.asked == 1, "nor does another language"


async def test_a_failure_costs_no_page(events: EventPages, shop: Shop) -> None:
    shop.away = True
    assert set(facts(await html(events, "de", may_have_place=True))) == {f"{PATH}/queue"}, "German was not rendered yet"


async def test_pages_of_invented_events_do_not_keep_those_of_a_known_one_away(
    events: EventPages, shop: Shop, monkeypatch
):
    go_on = asyncio.Event()

    async def never_found(event_id: str) -> None:
        await go_on.wait()
        raise UnknownEvent

    with monkeypatch.context() as patched:
        patched.setattr(shop, "event_page", never_found)
        invented = [asyncio.create_task(events.shell(f"no-{n}", "en")) for n in range(100)]
        await asyncio.sleep(0.05)
        assert sum(task.done() and isinstance(task.exception(), Overloaded) for task in invented) > 0
    assert (await events.shell("show", "en")).facts.line is not None
    go_on.set()
    await asyncio.gather(*invented, return_exceptions=True)


# -- the list of events ------------------------------------------------------------------------------------------------


def cards(page: httpx.Response) -> list[str]:
    return re.findall(r'<a class="event-card" href="/e/(\w+)">', page.text)


async def test_the_first_html_lists_events_with_state_price_and_time(fan: httpx.AsyncClient, shop: Shop) -> None:
    page = await fan.get("/", headers={"accept-language": "de"})
    assert cards(page) == ["show", "gig"]
    assert "&lt;i&gt;Show&lt;/i&gt;" in page.text
    assert "ab 1,50\xa0€" in page.text, "with everything in it"
    assert "1. Juni 2030, 20:00" in page.text, "on the venue's clock"
    assert 'data-state="open"' in page.text


async def test_more_events_are_a_link_away(fan: httpx.AsyncClient, shop: Shop) -> None:
    [link] = re.findall(r'<a id="more" class="button quiet" href="([^"]+)" >', (await fan.get("/")).text)
    assert link == "/?after=gig"
    last = await fan.get(link)
    assert cards(last) == ["late"]
    assert re.search(r'<a id="more"[^>]* hidden>', last.text)


async def test_a_page_is_rendered_once_in_some_seconds_however_many_open_it(fan: httpx.AsyncClient, shop: Shop) -> None:
    for _ in range(5):
        await fan.get("/")
    asked = shop.asked
    await fan.get("/?after=../%3Cb%3E")
    assert shop.asked == asked, "what is no event names no page of its own"


async def test_without_inventory_the_page_says_that_it_loads(fan: httpx.AsyncClient, shop: Shop) -> None:
    shop.away = True
    page = await fan.get("/")
    assert (page.status_code, cards(page)) == (200, [])
    assert re.search(r'<p id="loading" class="loading" >', page.text)


EMBED_MAX_BYTES = 3_000  # br
CLIENT_MAX_BYTES = 5_000
PICTURE = {"url": "/events/show/pictures/ab.jpg", "width": 1600, "height": 900, "alt": "The hall"}
LOGO = {"url": "/events/show/pictures/cd.svg", "width": 40, "height": 30, "alt": "Polar"}
BRAND = {"name": "Polar", "logo": LOGO, "accent": "#0b5d52", "accent_dark": "#14a692", "background": "#f2f7f5",
         "stylesheet": "/e/show/brand.css?v=1", "help_url": "https://polar.example/?a=1&b=\"2\""}  # fmt: skip


async def event_data(fan: httpx.AsyncClient) -> dict[str, Any]:
    text = (await fan.get("/e/show")).text
    [found] = re.findall(r'<script type="application/ld\+json">(.*?)</script>', text)
    data: dict[str, Any] = json.loads(found)
    return data


async def test_search_engines_read_the_event(fan: httpx.AsyncClient, shop: Shop) -> None:
    shop.more = {"picture": PICTURE, "brand": BRAND, "name": "</script><b>Bold"}
    data = await event_data(fan)
    page = "http://localhost:8000/e/show"
    assert (data["@context"], data["@type"], data["name"]) == ("https://schema.org", "Event", "</script><b>Bold")
    assert data["startDate"] == "2030-06-01T20:00:00+02:00", "on the venue's clock"
    assert data["location"] == {"@type": "Place", "name": "Arena", "address": "Arena"}
    assert (data["image"], data["url"]) == (["http://localhost:8000/events/show/pictures/ab.jpg"], page)
    assert data["offers"] == {
        "@type": "AggregateOffer", "lowPrice": "1.50", "highPrice": "3.50", "priceCurrency": "EUR",
        "availability": "https://schema.org/InStock", "url": page,
    }  # fmt: skip
    assert data["organizer"] == {"@type": "Organization", "name": "Polar"}


async def test_an_event_without_anything_left_is_sold_out(fan: httpx.AsyncClient, shop: Shop) -> None:
    shop.left = 0
    assert (await event_data(fan))["offers"]["availability"] == "https://schema.org/SoldOut"


async def test_an_event_with_places_left_for_who_has_a_code_is_not_sold_out(fan: httpx.AsyncClient, shop: Shop) -> None:
    shop.left, shop.reserved = 0, 5
    assert (await event_data(fan))["offers"]["availability"] == "https://schema.org/InStock"
    assert "5 left, kept for some fans" in (await fan.get("/e/show")).text


async def test_an_event_before_its_sale_says_when_it_starts(
    fan: httpx.AsyncClient, shop: Shop, publish_frame: Any
) -> None:
    await publish_frame(new_frame(state="prequeue", sale_starts_at_ms=START_MS))
    offers = (await event_data(fan))["offers"]
    assert (offers["availability"], offers["validFrom"]) == ("https://schema.org/PreSale", "2027-01-15T08:00:00.000Z")


async def test_the_head_is_shared_and_branded(fan: httpx.AsyncClient, shop: Shop) -> None:
    shop.more = {"picture": PICTURE, "brand": BRAND}
    text = (await fan.get("/e/show")).text
    for wanted in (
        '<meta property="og:image" content="http://localhost:8000/events/show/pictures/ab.jpg">',
        '<meta property="og:url" content="http://localhost:8000/e/show">',
        '<meta property="og:locale" content="en_GB">',
        '<meta name="twitter:card" content="summary_large_image">',
        '<link rel="canonical" href="http://localhost:8000/e/show">',
        '<link rel="stylesheet" href="/e/show/brand.css?v=1">',
        '<link rel="apple-touch-icon" href="/events/show/pictures/cd.svg">',
        'media="(prefers-color-scheme: light)" content="#f2f7f5"',
        '<a href="https://polar.example/?a=1&amp;b=&#34;2&#34;">Help</a>',
    ):  # fmt: skip
        assert wanted in text, wanted


async def test_an_event_without_brand_loads_nothing_for_one(fan: httpx.AsyncClient, shop: Shop) -> None:
    text = (await fan.get("/e/show")).text
    with_scripts = re.sub("<noscript>.*?</noscript>", "", text)
    assert re.findall(r'<link rel="stylesheet" href="([^"]+)"', with_scripts) == [
        f"/static/{assets(BUILT)['styles.css'].name}"
    ]
    assert "brand.css" not in text
    assert "og:image" not in text


@pytest.mark.parametrize(("logo", "icons"), [
    (LOGO, [("/events/show/pictures/cd.svg", "any")]),
    ({**LOGO, "url": "/pictures/cd.png", "width": 256, "height": 256}, [("/pictures/cd.png", "256x256")]),
    ({**LOGO, "url": "/pictures/cd.png", "width": 256, "height": 64}, None),
    (None, None),
])  # fmt: skip
async def test_a_home_screen_gets_an_icon(
    fan: httpx.AsyncClient, shop: Shop, logo: Any, icons: list[tuple[str, str]] | None
) -> None:
    shop.more = {"brand": {**BRAND, "logo": logo}}
    answer = await fan.get("/e/show/manifest.webmanifest", headers={"accept-language": "de"})
    manifest = answer.json()
    assert answer.headers["content-type"] == "application/manifest+json"
    assert (manifest["start_url"], manifest["display"], manifest["lang"]) == ("/e/show", "standalone", "de")
    assert manifest["theme_color"] == "#f2f7f5"
    ours = [(f"/static/{assets(BUILT)[f'icon-{px}.png'].name}", f"{px}x{px}") for px in (192, 512)]
    assert [(icon["src"], icon["sizes"]) for icon in manifest["icons"]] == (icons or ours)
    for src, _ in ours:
        assert (await fan.get(src)).headers["content-type"] == "image/png"


async def test_a_calendar_gets_the_event_on_the_venues_clock(fan: httpx.AsyncClient, shop: Shop) -> None:
    shop.more = {"name": "Rock, Pop; & a\\b\r\nATTENDEE:x" + " ünïcödé" * 12}
    answer = await fan.get("/e/show/calendar.ics")
    assert answer.headers["content-type"] == "text/calendar; charset=utf-8"
    assert all(len(line) <= 75 for line in answer.content.split(b"\r\n"))
    lines = answer.text.replace("\r\n ", "").split("\r\n")
    assert "DTSTART;TZID=Europe/Berlin:20300601T200000" in lines
    assert "DTEND;TZID=Europe/Berlin:20300601T230000" in lines, "three hours unless the event file says more"
    assert "TZID:Europe/Berlin" in lines
    assert lines[-1] == ""
    [summary] = [line for line in lines if line.startswith("SUMMARY:")]
    assert summary == r"SUMMARY:Rock\, Pop\; & a\\b\nATTENDEE:x" + " ünïcödé" * 12


async def test_the_end_of_a_show_is_told_to_calendars_and_search_engines(fan: httpx.AsyncClient, shop: Shop) -> None:
    shop.more = {"ends_at": "2030-06-02T02:00:00Z"}
    assert "DTEND;TZID=Europe/Berlin:20300602T040000\r\n" in (await fan.get("/e/show/calendar.ics")).text
    assert '"endDate":"2030-06-02T04:00:00+02:00"' in (await fan.get("/e/show")).text


@pytest.mark.parametrize(("zone", "start"), [
    ("UTC", "DTSTART:20300601T180000Z"), ("+09:00", "DTSTART:20300601T180000Z"),
    ("America/St_Johns", "DTSTART;TZID=America/St_Johns:20300601T153000"),
])  # fmt: skip
async def test_a_zone_without_a_name_is_written_as_utc(shop: Shop, zone: str, start: str) -> None:
    shop.more = {"timezone": zone}
    event: EventDetails = (await shop.event_page("show")).event
    assert (
        f"\r\n{start}\r\n" in calendar_file(calendar_entry(event, "https://t.example", to_datetime(START_MS))).decode()
    )


async def test_a_page_of_a_venue_whose_zone_is_an_offset_is_rendered(fan: httpx.AsyncClient, shop: Shop) -> None:
    shop.more = {"timezone": "+09:00"}
    assert "Sun, 2 June 2030" in (await fan.get("/e/show")).text


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_button_says_the_state_in_words(
    fan: httpx.AsyncClient, shop: Shop, publish_frame: Any, language: str
) -> None:
    shop.more = {"brand": BRAND}
    await publish_frame(new_frame(lanes=lanes(_0=(1000, 5321))))
    answer = await fan.get(f"/e/show/button.json?lang={language}")
    facts = answer.json()
    assert (facts["state"], facts["accent"], facts["accent_dark"]) == ("open", "#0b5d52", "#14a692")
    assert re.search("4.?321", facts["status"])
    if language == "en":
        assert (facts["status"], facts["label"]) == ("On sale · 4,321 fans in line", "Tickets")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    assert answer.headers["cache-control"] == "public, max-age=5"
    assert "set-cookie" not in answer.headers


async def test_the_button_counts_down_to_the_sale_and_knows_its_end(
    fan: httpx.AsyncClient, shop: Shop, publish_frame: Any
) -> None:
    await publish_frame(new_frame(state="prequeue", sale_starts_at_ms=START_MS, lanes=lanes(_0=(0, 0))))
    facts = (await fan.get("/e/show/button.json")).json()
    assert (facts["status"], facts["at"]) == ("Sale starts {moment}", "2027-01-15T08:00:00.000Z")


async def test_the_button_of_a_sold_out_event_asks_seldom(fan: httpx.AsyncClient, shop: Shop) -> None:
    shop.left = 0
    facts = (await fan.get("/e/show/button.json")).json()
    assert (facts["state"], facts["status"], facts["poll_after_s"]) == ("sold_out", "Sold out", 300)


async def test_only_the_button_is_for_every_site(fan: httpx.AsyncClient, shop: Shop) -> None:
    for path in ("/e/show", "/events/show/queue", "/e/show/manifest.webmanifest", "/e/show/calendar.ics"):
        assert "access-control-allow-origin" not in (await fan.get(path)).headers, path


@pytest.mark.parametrize(
    ("path", "media_type", "brotli_max_bytes"),
    [
        ("/embed.js", "text/javascript", EMBED_MAX_BYTES),
        ("/onsale.js", "text/javascript", CLIENT_MAX_BYTES),
        ("/onsale.d.ts", "application/typescript", 2 * CLIENT_MAX_BYTES),
    ],
)
async def test_a_script_for_others_is_small_and_asked_for_again(
    fan: httpx.AsyncClient, path: str, media_type: str, brotli_max_bytes: int
) -> None:
    answer = await fan.get(path, headers={"accept-encoding": "br"})
    assert answer.headers["content-type"].startswith(media_type)
    assert answer.headers["content-encoding"] == "br"
    assert answer.headers["cache-control"] == "public, max-age=300"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    again = await fan.get(path, headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert int(answer.headers["content-length"]) <= brotli_max_bytes
    gzipped = await fan.get(path, headers={"accept-encoding": "gzip"})
    assert path != "/onsale.js" or int(gzipped.headers["content-length"]) <= CLIENT_MAX_BYTES, "less than 5 KB"


@pytest.mark.parametrize("name", ["manifest.webmanifest", "calendar.ics", "button.json"])
async def test_an_unknown_event_has_none_of_it(fan: httpx.AsyncClient, name: str) -> None:
    answer = await fan.get(f"/e/nowhere/{name}")
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-event")
