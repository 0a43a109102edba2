"""The recorded answers are still what the API's documents say."""

import pytest

from tests.browser.recorded import api_documents
from tests.browser.recorded.site import BYTES, recorded

STATUSES = ("waiting", "ready", "admitted")  # of a place, recorded by these names


def test_every_recorded_answer_fits_the_documents() -> None:
    answers = recorded()
    for status in STATUSES:
        api_documents.check("GET", "/events/hall/queue/status", answers.pop(status))
    told = {request: body for request, body in answers.items() if isinstance(body, dict) and BYTES not in body}
    assert len(told) > 30
    for request, body in told.items():
        method, path = request.split(" ")
        api_documents.check(method, path, body)


@pytest.mark.parametrize("change", [{"tickets": None}, {"made_up": 1}])
def test_an_answer_that_does_not_fit_is_found(change: dict[str, object]) -> None:
    path = "/orders/ABCDEFGH2345/tickets"
    with pytest.raises(AssertionError, match=next(iter(change))):
        api_documents.check("GET", path, recorded()[f"GET {path}"] | change)
