"""What the API's documents say of an answer and of a problem: every answer that a test makes up must fit them."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

PAGES = Path(__file__).parents[3] / "features/pages"
DOCUMENT, PROBLEMS = PAGES / "openapi/fans.json", PAGES / "problems.json"
PARAMETER = re.compile(r"\\{\w+\\}")


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(DOCUMENT.read_text())
    return document


@cache
def _paths() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """The operations by the pattern of their paths; those without parameters come first."""
    paths = sorted(_document()["paths"].items(), key=lambda path: path[0].count("{"))
    return [(re.compile(PARAMETER.sub("[^/]+", re.escape(path))), operations) for path, operations in paths]


@cache
def _success(method: str, path: str) -> tuple[int, str | None]:
    """The status of an answer that is no problem, and the name of its schema."""
    operations = [found for pattern, found in _paths() if pattern.fullmatch(path) and method.lower() in found]
    assert operations, f"no page may ask {method} {path}"
    answers = operations[0][method.lower()]["responses"]
    status = next(status for status in answers if status.startswith("2"))
    schema = answers[status].get("content", {}).get("application/json", {}).get("schema", {})
    return int(status), schema.get("$ref")


@cache
def _validator(reference: str) -> Any:
    return jsonschema_rs.validator_for({"$ref": reference, "components": _document()["components"]})


def status_of(method: str, path: str) -> int:
    return _success(method, path)[0]


@cache
def _problems() -> dict[str, int]:
    """The status of each problem, by its slug."""
    return {problem["slug"]: problem["status"] for problem in json.loads(PROBLEMS.read_text())}


def problem(slug: str, title: str = "No.", **members: Any) -> dict[str, Any]:
    """A problem document as services write it."""
    return {"type": f"/problems/{slug}", "title": title, "status": _problems()[slug], **members}


def check_problem(answer: dict[str, Any]) -> None:
    slug = answer["type"].removeprefix("/problems/")
    assert _problems().get(slug) == answer["status"], f"{slug} has status {_problems().get(slug)}"


def check(method: str, path: str, body: Any) -> None:
    """Fails unless the API may answer so, without a field that no document has."""
    _, reference = _success(method, path)
    assert reference, f"{method} {path} answers no JSON"
    faults = [f"{fault.instance_path}: {fault.message}" for fault in _validator(reference).iter_errors(body)]
    known = _document()["components"]["schemas"][reference.rsplit("/", 1)[1]]["properties"].keys()
    unknown = body.keys() - known
    faults += [f"{name} is in no document" for name in unknown]
    assert faults == [], f"{method} {path}: {faults}"
