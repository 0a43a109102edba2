"""Every problem that the API answers with, by the service that raises it."""

from http import HTTPStatus

from onsale.imports import import_module
from onsale.maintenance.problem_catalogue import catalogue
from onsale.reference.markdown import Section, code, page
from shared.web.routes import SERVICES

TEXT = """An error of the API is a problem document (RFC 9457, `application/problem+json`): `type` is one of the
addresses below, `title` the sentence beside it, `detail` says more about this case, `request_id` finds it in the
logs. The gateway answers each `type` with a page for people, and with JSON for programs; `GET /problems` lists all. A
client goes by `type`, or by `status` if it does not know the type; new ones may be added."""
EXAMPLE = """```json
{"type": "/problems/seats-taken", "title": "At least one of these seats was taken. Choose other seats.",
 "status": 409, "detail": "At least one of these seats was taken. Choose other seats.", "request_id": "b1f0…"}
```"""


def problems_page() -> str:
    """docs/reference/problems.md"""
    entries, advice = catalogue(), import_module("services.gateway.api.problem_pages").ADVICE
    to_do = Section("What to do, by status", ("status", "what it is", "what to do"), [
        (str(status), HTTPStatus(status).phrase, text) for status, text in advice.items()
    ], after=EXAMPLE)  # fmt: skip
    return page("Problems", TEXT, [to_do, *(
        Section(service.capitalize() if service else "Of every service", ("type", "status", "title", "Retry-After"), [
            (code(f"/problems/{entry['slug']}"), str(entry["status"]), entry["title"],
             f"{entry['retry_after_s']} s" if entry["retry_after_s"] else "")
            for entry in entries if entry["service"] == service
        ]) for service in (None, *SERVICES) if any(entry["service"] == service for entry in entries)
    )])  # fmt: skip
