"""Where there are no seats, nothing is asked about seats."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.recorded.site import RecordedSite
from tests.browser.recorded.steps import come_in


@pytest.mark.parametrize(("event_id", "asked"), [("floor", False), ("hall", True)])
async def test_groups_are_offered_only_where_there_are_seats(
    page: Any, site: RecordedSite, event_id: str, asked: bool
) -> None:
    await come_in(page, site, event_id)
    await expect(page.locator("#best-where option")).not_to_have_count(1)
    await expect(page.locator("#best-groups")).to_be_visible(visible=asked)
