"""A mistyped e-mail address: asked about before anything is paid, and corrected on the order's page."""

import re
from typing import Any

import pytest
from playwright import sync_api

from shared.web.pages.words import words
from tests.browser.steps import enter_from_catalogue, expect_confirmed, hold, select_seat
from tests.support.running.suite import RunningSuite


@pytest.mark.parametrize(("button", "bought_by"), [("#email-take", "ada@gmail.com"), ("#email-keep", "ada@gmial.com")])
def test_a_fan_is_asked_once_and_corrects_the_address_afterwards(
    page: Any, suite: RunningSuite, button: str, bought_by: str
) -> None:
    enter_from_catalogue(page, suite)
    select_seat(page, "A")
    hold(page)
    page.locator("#name").fill("Ada Lovelace")
    page.locator("#email").fill("ada@gmial.com")
    page.locator("#pay").click()
    sync_api.expect(page.locator("#email-meant")).to_be_visible()
    sync_api.expect(page.locator("#email-meant-text")).to_have_text(words("en")("email_meant", email="ada@gmail.com"))
    sync_api.expect(page).not_to_have_url(re.compile("/o/"))
    page.locator(button).click()
    page.wait_for_url("**/o/*")
    expect_confirmed(page)
    sync_api.expect(page.locator("#address-text")).to_have_text(words("en")("address_mails_to", email=bought_by))
    page.locator("#address-change summary").click()
    page.locator("#email").fill("ada@hotnail.com")
    page.locator("#address-save").click()
    page.locator("#email-take").click()
    corrected = words("en")("address_mails_to", email="ada@hotmail.com")
    sync_api.expect(page.locator("#address-text")).to_have_text(corrected)
    page.reload()
    sync_api.expect(page.locator("#address-text")).to_have_text(corrected)


def test_a_domain_without_a_dot_is_not_sent(page: Any, suite: RunningSuite) -> None:
    enter_from_catalogue(page, suite)
    select_seat(page, "A")
    hold(page)
    page.locator("#name").fill("Ada Lovelace")
    page.locator("#email").fill("ada@gmial")
    page.locator("#pay").click()
    assert page.locator("#email").evaluate("field => field.validity.patternMismatch")
    sync_api.expect(page.locator("#held")).to_be_visible()
