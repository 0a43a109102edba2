"""Every story of a purchase, with workers stopped at each of its failpoints."""

import pytest

from tests.orders.stopped_workers import check_story
from tests.orders.stories import STORIES, Story


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_a_worker_stopped_at_any_failpoint_does_not_change_the_end_of_a_story(
    story: Story, postgres_url: str, redis_url: str
) -> None:
    await check_story(story, postgres_url, redis_url)
