"""Every endpoint of the API, from the OpenAPI documents that the gateway serves, and every problem it answers with."""

import json
from collections.abc import Iterator
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import Any

from shared.routes import SERVICES, route
from shared.web.api_document import REFUSALS, operations
from tools.openapi import TITLES, Readers
from tools.problem_catalogue import catalogue
from tools.reference.markdown import Section, code, page

TEXT = """The gateway serves the documents themselves: `/openapi/fans.json` for fans' browsers and shops,
`/openapi/operators.json` for operators, and a page for each to read and try them. Bodies and answers stand there. Who
may call: a *pass*, a *queue token*, an *order token* or a *user JWT* travels as `Authorization: Bearer …` or in the
cookie that its service set; for operators the least role of their key stands there. Errors are
[problems](problems.md); besides those of a row, any call may answer 400, 422, 429 and 503."""
PROBLEMS_TEXT = """An error of the API is a problem document (RFC 9457, `application/problem+json`): `type` is one of
the addresses below, `title` the sentence beside it, `detail` says more about this case, `request_id` finds it in the
logs. The gateway answers each `type` with a page for people, and with JSON for programs; `GET /problems` lists all. A
client goes by `type`, or by `status` if it does not know the type; new ones may be added."""
EXAMPLE = """```json
{"type": "/problems/seats-taken", "title": "At least one of these seats was taken. Choose other seats.",
 "status": 409, "detail": "At least one of these seats was taken. Choose other seats.", "request_id": "b1f0…"}
```"""
CREDENTIALS = {
    "queueToken": "queue token", "queueCookie": "queue token", "pass": "pass", "passCookie": "pass",
    "orderToken": "order token", "userJwt": "user JWT", "adminKey": "an operator's key",
}  # fmt: skip
ANYWHERE = frozenset({400, 422, 429, 503})
COLUMNS = ("method", "path", "what it does", "who may call", "errors")
PLACEHOLDERS = {"{event_id}": "arena", "{reference}": "7QK2M9TZ4HXA", "{section_id}": "A"}


def document(readers: Readers) -> dict[str, Any]:
    """The committed OpenAPI document; another test holds it to the code."""
    pages: Path = import_module("features.pages.gateway.documents").PAGES
    found: dict[str, Any] = json.loads((pages / "openapi" / f"{readers}.json").read_text(encoding="utf-8"))
    return found


def service_of(path: str) -> str:
    """The service that answers a path with placeholders."""
    for placeholder, value in PLACEHOLDERS.items():
        path = path.replace(placeholder, value)
    row = route(path)
    assert row is not None, path
    return row.service


def endpoints_page() -> str:
    """docs/reference/openapi.md"""
    statuses = Section("Errors", ("status", "what it says"), [(str(each), text) for each, text in REFUSALS.items()])
    return page("The API", TEXT, [section for readers in TITLES for section in _sections(readers)] + [statuses])


def _sections(readers: Readers) -> Iterator[Section]:
    yield Section(f"For {'fans and shops' if readers == 'fans' else readers}")
    found = [(service_of(path), path, method, made) for path, method, made in operations(document(readers))]
    for service in SERVICES:
        rows = [_row(path, method, made) for owner, path, method, made in found if owner == service]
        if rows:
            yield Section(
                f"{service.capitalize()}, for {readers}", COLUMNS, sorted(rows, key=lambda row: row[1]), level=3
            )


def _row(path: str, method: str, made: dict[str, Any]) -> tuple[str, ...]:
    errors = sorted({int(status) for status in made["responses"] if int(status) >= 400} - ANYWHERE)
    return code(method.upper()), code(path), made["summary"], _who(made), ", ".join(map(str, errors))


def _who(made: dict[str, Any]) -> str:
    """The credentials, each of which suffices."""
    known = made.get("security", [])
    words = [role for need in known for scheme, roles in need.items() for role in roles or [CREDENTIALS[scheme]]]
    return ", ".join(dict.fromkeys(words)) or "anybody"


def problems_page() -> str:
    """docs/reference/problems.md"""
    entries, advice = catalogue(), import_module("features.pages.gateway.problem_pages").ADVICE
    to_do = Section("What to do, by status", ("status", "what it is", "what to do"), [
        (str(status), HTTPStatus(status).phrase, text) for status, text in advice.items()
    ], after=EXAMPLE)  # fmt: skip
    return page("Problems", PROBLEMS_TEXT, [to_do, *(
        Section(service.capitalize() if service else "Of every service", ("type", "status", "title", "Retry-After"), [
            (code(f"/problems/{entry['slug']}"), str(entry["status"]), entry["title"],
             f"{entry['retry_after_s']} s" if entry["retry_after_s"] else "")
            for entry in entries if entry["service"] == service
        ]) for service in (None, *SERVICES) if any(entry["service"] == service for entry in entries)
    )])  # fmt: skip
