"""A fan's own figures are in this fan's first HTML alone; pages for fans without scripts refresh, and are limited; that
of an order says what became of the money.
"""

import re
from typing import Any

import pytest

from features.pages.contracts import OwnOrder
from features.pages.gateway.documents import Shell, rendered, slot
from features.pages.gateway.own import LeftAlone, OwnView, order_view
from features.pages.gateway.plain_pages import PlainPageLimit
from shared.contracts.orders import CustomerView, LineView, OrderView
from shared.words.words import LANGUAGES, words
from tests.gateway.conftest import gateway_client

PATH, PAGE = "/events/show/queue", "/e/show"


def position(text: str) -> str:
    [found] = re.findall(r'<p id="position" class="position">(.*?)</p>', text)
    return found


@pytest.fixture
async def line(queue, browser):
    """A line of three, of whom the last two are returned."""
    await queue.open()
    fans = [browser() for _ in range(3)]
    for each in fans:
        await each.get(PAGE)
        assert (await each.post(PATH)).status_code == 201
    return fans[1:]


async def test_the_first_html_has_this_fans_position_and_nobody_elses(line, browser):
    second, third = line
    pages = [await each.get(PAGE) for each in (second, third, second)]
    assert [position(page.text) for page in pages] == ["2", "3", "2"]
    assert {page.headers["cache-control"] for page in pages} == {"private, no-store"}
    assert all("refresh" not in page.headers for page in pages), "scripts poll by themselves"
    stranger = await browser().get(PAGE)
    assert (position(stranger.text), '"position_in_queue"' in stranger.text) == ("", False)
    assert 'data-step="lobby"' in stranger.text
    assert 'data-step="waiting"' in pages[0].text


async def test_the_page_brings_the_status_for_its_script_and_is_a_heartbeat(line, queue, state):
    status = (await line[0].get(f"{PATH}/status")).json()
    text = (await line[0].get(PAGE)).text
    assert f'"/events/show/queue/status":{{"status":"waiting","join_seq":{status["join_seq"]}' in text


async def test_a_fan_without_scripts_is_refreshed_until_they_stop_it(line):
    fan = line[0]
    await fan.get(f"{PAGE}?scripts=off")
    page = await fan.get(PAGE)
    seconds, url = page.headers["refresh"].split("; url=")
    assert (2 <= int(seconds) <= 10, url) == (True, PAGE)
    assert "http-equiv" not in page.text, "a timed refresh cannot be stopped"
    still = await fan.get(f"{PAGE}?still=1")
    assert "refresh" not in still.headers
    assert (position(still.text), "This page stands still." in still.text) == ("2", True)
    with_scripts = await fan.get(f"{PAGE}?scripts=on")
    assert "refresh" not in with_scripts.headers


async def test_beyond_the_limit_a_small_page_asks_again_by_itself(queue, settings):
    await queue.open()
    async with gateway_client(settings.model_copy(update={"plain_pages_per_s": 1})) as fan:
        fan.cookies["onsale_plain"] = "1"
        pages = [await fan.get(PAGE) for _ in range(4)]
        assert pages[0].status_code == 200
        busy = pages[-1]
        assert (busy.status_code, busy.headers["retry-after"], busy.headers["refresh"]) == (503, "5", "5")
        assert ("One moment, please" in busy.text, len(busy.text) < 2_500) == (True, True)
        fan.cookies.delete("onsale_plain")
        assert (await fan.get(PAGE)).status_code == 200, "pages with scripts are not limited"


async def test_one_address_takes_a_share_of_the_pages_and_leaves_the_rest(queue, settings):
    await queue.open()
    async with gateway_client(settings.model_copy(update={"plain_pages_per_s": 5})) as fan:
        fan.cookies["onsale_plain"] = "1"
        for path in (PAGE, "/o/ABCDEFGH12"):
            greedy = [await fan.get(path, headers={"x-forwarded-for": f"198.51.100.1:{n}"}) for n in range(10)]
            assert greedy[-1].status_code == 503
        other = await fan.get(PAGE, headers={"x-forwarded-for": "198.51.100.2"})
        assert other.status_code == 200


def test_a_share_comes_back_when_no_page_was_left():
    limit = PlainPageLimit(per_s=10, addresses_max=100)
    addresses = [f"198.51.100.{n}" for n in range(200)]
    assert sum(limit.allow(address) for address in addresses) == 10
    assert len(limit._shares) <= 11


@pytest.mark.parametrize("query", [
    {"problem": "<b>x"}, {"entry": '"><b>x'}, {"code": '"><b>x'}, {"promo": '"><b>x'}, {"section": "<b>x"},
    {"page": "-1"}, {"alone": "<b>x", "better": "<b>"},
])  # fmt: skip
async def test_what_stands_in_the_address_is_never_html(fan, queue, query):
    await queue.open()
    fan.cookies["onsale_plain"] = "1"
    page = await fan.get(PAGE, params=query)
    assert (page.status_code, "<b>x" in page.text) == (200, False)


def test_better_seats_are_a_form_for_a_fan_who_chooses_and_a_note_for_one_who_holds():
    text, query = words("en"), {"alone": "A-1-3", "better": "A-1-1.A-1-2.<b>x"}
    single = LeftAlone.of(query, text, {"A": "Block A"})
    view = OwnView("show", step="choosing", key="k", sections=[], single=single)
    page = rendered("own.html", "en", view=view)
    assert re.findall(r'name="seat" value="([^"]*)"', page) == ["A-1-1", "A-1-2"]
    assert "Take Block A, row 1, seat 1; Block A, row 1, seat 2 instead" in page
    assert "Left alone: Block A, row 1, seat 3." in page
    assert LeftAlone.of({"better": "A-1-1"}, text, {}) is None
    assert LeftAlone.of({"alone": "<b>x"}, text, {}) is None


async def test_a_place_from_before_a_reset_is_the_lobby(line, queue, publish_frame):
    fan = line[0]
    fan.cookies["onsale_plain"] = "1"
    await publish_frame(await queue.reset())
    assert 'data-step="lobby"' in (await fan.get(PAGE)).text


async def test_an_order_without_a_key_says_so_and_asks_nobody(fan):
    fan.cookies["onsale_plain"] = "1"
    page = await fan.get("/o/ABCDEFGH12")
    assert "This browser has no key to this order." in page.text
    assert page.headers["cache-control"] == "private, no-store"


def test_a_slot_without_a_value_is_empty_and_a_value_fills_no_other_slot():
    shell = Shell(f"<p>{slot('a')}</p>{slot('b')}{slot('a')}")
    assert shell.filled({"a": slot("b"), "b": "2"}) == f"<p>{slot('b')}</p>2{slot('b')}"
    assert shell.filled({}) == "<p></p>"


# -- orders ------------------------------------------------------------------------------------------------------------

NOW = "2027-05-01T20:00:00Z"


def test_the_page_of_an_order_says_price_types_and_what_is_shown_at_the_door() -> None:
    line = LineView(
        section_id="A", seat_id="A-1-1", quantity=1, returned=0, unit_price_minor=6800, paid_minor=6800,
        type_id="senior", type_name="Concession",
    )  # fmt: skip
    bought = own(status="confirmed", lines=[line])
    view = order_view(words("en"), bought, event_name="A show", sections={"A": "Stalls"}, proofs={"senior": "A card"})
    assert view.tickets == ["Stalls, row 1, seat 1 · Concession · Show at the door: A card"]
    view = order_view(words("en"), bought, event_name="A show", sections={"A": "Stalls"})
    assert view.tickets == ["Stalls, row 1, seat 1 · Concession"]


def own(**changes: Any) -> OwnOrder:
    line = LineView(
        section_id="A", seat_id="A-1-1", quantity=1, returned=0, unit_price_minor=6800, paid_minor=6800
    )  # fmt: skip
    order = OrderView(
        reference="7Q2M4XK9TB1C", event_id="show", reservation_id="r", progress=None, total_minor=6800, currency="EUR",
        charged_minor=6800, refunding_minor=0, extras=[], language="en",
        customer=CustomerView(name="Ada", email="ada@example.org"), created_at=NOW, expires_at=NOW,
        expires_in_seconds=0, confirmed_at=NOW, fulfilled_at=NOW, cancel_asked=False, extended=False, oversold=False,
        attempt=None, **{"refunded_minor": 0, "end_reason": None, "lines": [line], **changes},
    )  # fmt: skip
    return OwnOrder(order=order, providers=[])


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("changes", "face"), [
    ({"status": "review", "dispute": "open", "disputed_minor": 6800, "end_reason": "disputed"}, "disputed"),
    ({"status": "review", "end_reason": "refunded-outside", "refunded_minor": 100}, "review"),
    ({"status": "refunded", "dispute": "lost", "disputed_minor": 6800}, "taken_back"),
    ({"status": "refunded", "refunded_minor": 6800}, "refunded"),
    ({"status": "confirmed", "dispute": "won"}, "confirmed"),
])  # fmt: skip
def test_a_fan_reads_a_sentence_about_the_payment(language: str, changes: dict[str, Any], face: str) -> None:
    text = words(language)
    view = order_view(text, own(**changes), event_name="A show", sections={})
    assert (view.face, view.title, view.text) == (face, text(f"order_{face}"), text(f"order_{face}_text"))
    assert view.text
