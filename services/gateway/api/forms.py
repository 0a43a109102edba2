"""The forms of the line for pages without scripts: join, leave, come in and more time to choose.

A join has one key for each browser and event, so that a double press, a second tab or a reload finds the same place;
the browser's secret cookie makes it this browser's own.
"""

from urllib.parse import urlencode

from shared.routes import EVENT_ID
from shared.web.forms import Form, SentForm

EVENT = rf"/events/(?P<event_id>{EVENT_ID})"
JOIN_KEY = "join-form-of-this-browser"


def event_page(sent: SentForm) -> str:
    """The event's page, with the wait that a join was answered with. A code never gets into an address."""
    entry = sent.answer.get("entry")
    return f"/e/{sent.path['event_id']}" + (f"?{urlencode({'entry': entry})}" if entry else "")


FORMS = (
    Form(
        f"{EVENT}/queue", lambda fields: fields.given(code=fields.one("code")), event_page,
        method="DELETE", key=lambda fields: JOIN_KEY,
    ),
    Form(f"{EVENT}/queue/pass(/extend)?", lambda fields: {}, event_page),
)  # fmt: skip
