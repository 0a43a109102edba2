"""Joins the OpenAPI documents of the services into two: one for fans and shops, one for operators.

`make api-documents` writes them to where the gateway serves them; a test fails when they differ from the code.
"""

import importlib
from typing import Any, Literal

from shared import VERSION
from shared.features import package_of, services
from shared.web.api_document import PROBLEM, SECURITY_SCHEMES
from tools.clients.fan_code import REF, reachable

Readers = Literal["fans", "operators"]
PROBES = frozenset({"/livez", "/readyz", "/metrics", "/version"})
TITLES: dict[Readers, str] = {
    "fans": "Onsale: the line, tickets and orders, for fans' browsers and for shops",
    "operators": "Onsale: rooms, stock and orders, for operators",
}


def documents() -> dict[Readers, dict[str, Any]]:
    """The two documents, by the name of their readers."""
    made = {readers: _empty(title) for readers, title in TITLES.items()}
    for service in services():
        document = importlib.import_module(f"{package_of(service)}.app").create_app().openapi()
        for path, item in document["paths"].items():
            if path not in PROBES:
                readers: Readers = "operators" if path.startswith(("/admin", "/console")) else "fans"
                _add(made[readers], service, document["components"]["schemas"], path, item)
    return made


def _empty(title: str) -> dict[str, Any]:
    return {
        "openapi": "3.1.0", "info": {"title": title, "version": VERSION}, "servers": [{"url": "/"}], "paths": {},
        "components": {"schemas": {"Problem": PROBLEM}, "securitySchemes": SECURITY_SCHEMES},
    }  # fmt: skip


def _add(into: dict[str, Any], service: str, schemas: dict[str, Any], path: str, item: dict[str, Any]) -> None:
    """Adds a path and all schemas it refers to. Different schemas of one name get the service as prefix."""
    kept: dict[str, Any] = into["components"]["schemas"]
    names = {name: name if kept.get(name, titled := {**schema, "title": name}) == titled else f"{service.title()}{name}"
             for name, schema in schemas.items()}  # fmt: skip
    for name in sorted(reachable(schemas, item)):
        kept[names[name]] = {**_renamed(schemas[name], names), "title": names[name]}
    into["paths"].setdefault(path, {}).update(_renamed(item, names))


def _renamed(part: Any, names: dict[str, str]) -> Any:
    if isinstance(part, dict):
        return {
            key: REF + names[value.removeprefix(REF)] if key == "$ref" else _renamed(value, names)
            for key, value in part.items()
        }
    return [_renamed(each, names) for each in part] if isinstance(part, list) else part
