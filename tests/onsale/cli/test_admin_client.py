"""The client of the admin API reads a list page by page."""

import httpx
import pytest

from onsale.admin_client import AdminClient
from onsale.errors import OperatorError

ENTRY = {
    "at": "2027-03-05T19:30:00Z", "actor": "ann", "role": None, "action": "open", "subject": "event:e", "reason": None,
    "version": 1, "before": None, "after": None,
}  # fmt: skip


def answer(request: httpx.Request) -> httpx.Response:
    """Two pages; whoever asks for a third gets a problem."""
    before = request.url.params.get("before")
    if before not in (None, "2"):
        return httpx.Response(404, json={"detail": "no such page"})
    following = f"{request.url.path}?before=2&page_size=1" if before is None else None
    return httpx.Response(200, json={"changes": [{**ENTRY, "id": 2 if before is None else 1}], "next": following})


async def test_pages_are_read_until_the_last() -> None:
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        admin = AdminClient(client, "http://suite", "key")
        pages = [page async for page in admin.pages("list_queue_changes", query={"page_size": 1}, event_id="e")]
        assert [entry.id for page in pages for entry in page.changes] == [2, 1]
        with pytest.raises(OperatorError, match="no such page"):
            await anext(admin.pages("list_queue_changes", query={"before": 7}, event_id="e"))
