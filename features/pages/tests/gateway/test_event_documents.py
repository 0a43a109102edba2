"""What goes with an event's page: structured data, manifest, calendar file, and the button for other sites."""

import json
import re
from typing import Any

import httpx
import pytest

from features.pages.gateway.api import calendar_entry
from features.pages.gateway.documents import BUILT
from features.pages.tests.shop import Shop
from shared.contracts.catalogue import EventDetails
from shared.runtime.clock import to_datetime
from shared.web.built_files import assets
from shared.web.calendar_file import calendar_file
from shared.words.words import LANGUAGES
from tests.gateway.frames import START_MS, lanes, new_frame

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
