"""What is wrong with an answer, judged by the OpenAPI document of its operation.

A status, a content type or a body that the document does not describe, a server error, a problem document that says
another status, an answer to somebody who may not have it.
"""

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import orjson

from proof.bad_input.generated.documents import Call, read_document
from shared.http.http1 import HttpResponse
from shared.web.api_document import operations
from tools.openapi import Readers

PROBLEM = "application/problem+json"
RANKS = {"nobody": -2, "fan": -1, "viewer": 0, "operator": 1, "admin": 2}


class AnswerChecks:
    """Checks answers to the operations of one document."""

    def __init__(self, readers: Readers, document: dict[str, Any] | None = None) -> None:
        self._document = document or read_document(readers)
        self._operations = {f"{m.upper()} {path}": each for path, m, each in operations(self._document)}
        self._validators: dict[tuple[str, int, str], Any] = {}
        self._problem = self._validator({"$ref": "#/components/schemas/Problem"})

    def faults(self, call: Call, answer: HttpResponse, role: str) -> Iterator[str]:
        """A sentence for each fault of this answer to somebody of this role."""
        operation, status = self._operations[call.label], answer.status_code
        media_type = answer.headers.get("content-type", "").partition(";")[0].strip()
        if status >= 500:
            yield f"server error {status}"
        elif f"{call.method} {call.path}" not in self._operations:
            if status < 400:
                yield f"{call.method}, which is not documented, answered {status}"
        elif str(status) not in operation["responses"]:
            yield f"status {status} is not documented"
        else:
            yield from self._content(call.label, operation["responses"][str(status)], media_type, answer)
        if status >= 400:
            yield from self._refusal(media_type, answer)
        elif _needed_rank(operation) > RANKS[role]:
            yield f"answered {status} to {role}, who may not have it"

    def _content(self, label: str, documented: dict[str, Any], media_type: str, answer: HttpResponse) -> Iterator[str]:
        content = documented.get("content", {})
        if not content:
            if answer.content:
                yield f"an answer with {answer.status_code} has a body, and none is documented"
            return
        family = f"{media_type.partition('/')[0]}/*"
        described = content.get(media_type) or content.get(family)
        if described is None:
            yield f"content type {media_type!r} of {answer.status_code} is not documented"
        elif media_type.endswith("json"):
            validator = self._validators.get(key := (label, answer.status_code, media_type))
            if validator is None:
                validator = self._validators[key] = self._validator(described.get("schema", {}))
            yield from _invalid(validator, answer)

    def _refusal(self, media_type: str, answer: HttpResponse) -> Iterator[str]:
        if media_type != PROBLEM:
            yield f"{answer.status_code} is {media_type!r}, not a problem document"
            return
        yield from _invalid(self._problem, answer)
        if _json(answer).get("status") != answer.status_code:
            yield f"a problem document with another status than {answer.status_code}"
        if answer.status_code in (429, 503) and not answer.headers.get("retry-after", "").isdigit():
            yield f"{answer.status_code} without Retry-After"

    def _validator(self, schema: dict[str, Any]) -> Any:
        return jsonschema_rs.Draft202012Validator({**schema, "components": self._document["components"]})


def _needed_rank(operation: dict[str, Any]) -> int:
    """The least rank that one of the documented credentials has."""
    credentials = operation.get("security") or [{}]
    return min(
        max((RANKS[role] for role in each.get("adminKey", [])), default=-2 if not each else -1) for each in credentials
    )


def _json(answer: HttpResponse) -> dict[str, Any]:
    try:
        value = orjson.loads(answer.content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _invalid(validator: Any, answer: HttpResponse) -> Iterator[str]:
    try:
        value = orjson.loads(answer.content)
    except ValueError:
        yield f"the body of {answer.status_code} is not JSON"
        return
    if not validator.is_valid(value):
        wrong = next(validator.iter_errors(value))
        path = "/".join(map(str, wrong.instance_path))
        where = path or "the root"
        yield f"the body of {answer.status_code} does not match its schema at {where}: {wrong.message[:200]}"
