"""Where there are no seats, nothing is asked about seats."""

from typing import Any

import pytest
from playwright import sync_api

from tests.browser.steps import enter, put_on_sale
from tests.support.running.suite import RunningSuite

FLOOR = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 3000}
BLOCK = {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 2, "seats_per_row": 5, "price_minor": 4000}


@pytest.mark.parametrize(("sections", "asked"), [([FLOOR], False), ([FLOOR, BLOCK], True)])
def test_groups_are_offered_only_where_there_are_seats(
    page: Any, suite: RunningSuite, sections: list[dict[str, Any]], asked: bool
) -> None:
    page.goto(f"{suite.url}/e/{put_on_sale(suite, sections=sections)}")
    enter(page)
    sync_api.expect(page.locator("#best-where option")).not_to_have_count(1)
    sync_api.expect(page.locator("#best-groups")).to_be_visible(visible=asked)
