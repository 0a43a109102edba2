"""Forms of the line: join, leave and claim as the API's, from our own pages only, and one place for each browser."""

import asyncio
import re

import pytest

from features.pages.forms import FIELDS_MAX, FORM_BYTES_MAX
from shared.contracts.queue import JoinBatch

PATH, PAGE = "/events/show/queue", "/e/show"


@pytest.fixture
async def visitor(fan, queue):
    """A fan who has seen the page, so that the browser has its secret."""
    await queue.open()
    assert (await fan.get(PAGE)).status_code == 200
    return fan


def expect_page(answer, location: str) -> None:
    assert (answer.status_code, answer.headers["location"]) == (303, location), answer.text
    assert answer.headers["cache-control"] == "no-store"


async def test_a_form_joins_and_leads_back_to_the_page(visitor, queue):
    expect_page(await visitor.post(PATH, data={"code": ""}), PAGE)
    assert (len(await queue.holders()), visitor.cookies["onsale_plain"]) == (1, "1")
    page = (await visitor.get(PAGE)).text
    assert re.search(r'<p id="position" class="position">1</p>', page)
    assert (await visitor.get(f"{PATH}/status")).json()["join_seq"] == 1, "the API knows the same place"


async def test_a_double_press_and_a_repeated_form_take_one_place(visitor, queue):
    cookies = dict(visitor.cookies)
    answers = await asyncio.gather(*(visitor.post(PATH, data={"code": ""}) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {303}
    visitor.cookies.delete("onsale_queue_show")
    visitor.cookies.update(cookies)  # as a second tab that has not got the place's cookie yet
    await visitor.post(PATH, data={"code": ""})
    assert len(set(await queue.holders())) == 1, "the queue gives one holder one place"


async def test_two_browsers_are_two_fans(visitor, browser, queue):
    other = browser()
    await other.get(PAGE)
    for each in (visitor, other):
        await each.post(PATH, data={"code": ""})
    assert len(await queue.holders()) == 2


async def test_a_browser_without_cookies_takes_no_place(fan, queue):
    await queue.open()
    expect_page(await fan.post(PATH, data={"code": ""}), f"{PAGE}?problem=cookies-needed")
    assert queue.received("/joins", JoinBatch) == []
    page = (await fan.get(f"{PAGE}?problem=cookies-needed")).text
    assert "Allow cookies for this site" in page


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": ""},
        {"origin": "http://gateway", "sec-fetch-site": "cross-site"},
        {"origin": "http://gateway", "sec-fetch-site": "same-site"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("fields", [{"code": "A"}, {"_method": "DELETE"}])
async def test_a_form_of_another_site_is_refused(visitor, queue, headers, fields):
    await visitor.post(PATH, data={"code": ""})
    joined = len(queue.received("/joins", JoinBatch))
    for path in (PATH, f"{PATH}/pass"):
        answer = await visitor.post(path, data=fields, headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/foreign-origin")
    assert (len(queue.received("/joins", JoinBatch)), queue.calls["/leaves"], queue.calls["/claims"]) == (joined, 0, 0)


async def test_a_form_leaves_and_joins_again(visitor, queue):
    await visitor.post(PATH, data={"code": ""})
    answer = await visitor.post(PATH, data={"_method": "DELETE"})
    expect_page(answer, PAGE)
    assert any(each.startswith("onsale_queue_show=;") for each in answer.headers.get_list("set-cookie"))
    assert queue.calls["/leaves"] == 1


async def test_only_the_method_of_the_form_may_be_named(visitor, queue):
    await visitor.post(PATH, data={"_method": "PUT"})
    assert len(queue.received("/joins", JoinBatch)) == 1, "a join like any other"


async def test_a_called_fan_comes_in_by_a_form_and_gets_the_pass_as_a_cookie(visitor, queue, publish_frame):
    await visitor.post(PATH, data={"code": ""})
    expect_page(await visitor.post(f"{PATH}/pass", data={"x": "1"}), f"{PAGE}?problem=not-admitted")
    await publish_frame(await queue.call())
    assert "Come in" in (await visitor.get(PAGE)).text
    expect_page(await visitor.post(f"{PATH}/pass", data={"x": "1"}), PAGE)
    assert "onsale_pass_show" in visitor.cookies


async def test_a_refused_code_is_said_on_the_page_and_never_in_the_address(visitor):
    expect_page(await visitor.post(PATH, data={"code": "WRONG"}), f"{PAGE}?problem=code-unknown")
    page = (await visitor.get(f"{PAGE}?problem=code-unknown")).text
    assert "This code opens no lane of this line." in page


async def test_what_is_no_form_of_ours_is_read_as_the_api_reads_it(visitor):
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert (await visitor.post(f"{PATH}/status", content=b"a=1", headers=form)).status_code == 405
    answer = await visitor.post(PATH, content=b"code=A", headers={"content-type": "text/plain"})
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/malformed-request")


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"a=" + b"x" * FORM_BYTES_MAX, 413), (b"&".join([b"a=1"] * (FIELDS_MAX + 1)), 400), (b"a=\xff", 400)],
)
async def test_a_form_has_limits(visitor, queue, body, status):
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert (await visitor.post(PATH, content=body, headers=form)).status_code == status
    assert queue.received("/joins", JoinBatch) == []
