"""Reads an OpenAPI document: its operations, and the schemas that a part of it refers to."""

from collections.abc import Iterator
from typing import Any

REF = "#/components/schemas/"


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and operation of each route."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def reachable(schemas: dict[str, Any], part: Any) -> set[str]:
    """The names of all schemas that a part of a document refers to, through others too."""
    needed, found = set[str](), referred(part)
    while found - needed:
        needed |= found
        found = set().union(*(referred(schemas[name]) for name in needed))
    return needed


def referred(part: Any) -> set[str]:
    """The names of the schemas that a part of a document names itself."""
    if isinstance(part, dict):
        here = {part["$ref"].removeprefix(REF)} if isinstance(part.get("$ref"), str) else set()
        return here.union(*map(referred, part.values()))
    return set().union(*map(referred, part)) if isinstance(part, list) else set()
