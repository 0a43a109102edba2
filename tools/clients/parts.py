"""Writes the generated parts of the clients, from the committed OpenAPI documents.

They are not in the repository: the build backend writes them before it builds or installs the package, `make` before it
runs anything. So this needs the standard library alone. Other modules make the Python code; the types of the JavaScript
client and of the console, `documents.ts`, are made here.
"""

import json
from pathlib import Path
from typing import Any

from tools.clients.fan_code import MARK, calls_module, documents_module, schemas_in_order
from tools.clients.operator_code import operators_module

ROOT = Path(__file__).parents[2]
KINDS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def _types_module(document: dict[str, Any], *, complete: bool = False) -> str:
    """The source of the types; `complete` for documents that have all their fields, as operators are answered."""
    types = [_interface(name, schema, complete=complete) for name, schema in schemas_in_order(document).items()]
    return f"// {MARK}\n\n" + "\n".join(types)


def _interface(name: str, schema: dict[str, Any], *, complete: bool) -> str:
    fields = schema.get("properties", {})
    required = set(fields if complete else schema.get("required", ()))
    lines = [
        f"{_comment(value, '  ')}  {field}{'' if field in required else '?'}: {_type(value)};\n"
        for field, value in fields.items()
    ]
    if schema.get("additionalProperties") is True:
        lines.append("  [more: string]: unknown;\n")
    return f"{_comment(schema, '')}export interface {name} {{\n{''.join(lines)}}}\n"


def _comment(schema: dict[str, Any], indent: str) -> str:
    text = " ".join(str(schema.get("description", "")).split())
    return f"{indent}/** {text} */\n" if text else ""


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if choices := schema.get("anyOf", schema.get("oneOf")):
        return " | ".join(dict.fromkeys(map(_type, choices)))
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if "prefixItems" in schema:
        return f"[{', '.join(map(_type, schema['prefixItems']))}]"
    if kind == "array":
        inner = _type(schema.get("items", {}))
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if kind == "object":
        values = schema.get("additionalProperties")
        names = _type(schema.get("propertyNames", {"type": "string"}))
        return f"Record<{names}, {_type(values) if isinstance(values, dict) else 'any'}>"
    return KINDS.get(str(kind), "any")


def write() -> None:
    """Writes them. The archive of sources has no `web`."""
    client, web = ROOT / "onsale" / "client", ROOT / "web"
    fans, operators = _document("fans"), _document("operators")
    parts = {
        client / "fan_documents.py": documents_module(fans),
        ROOT / "shared" / "contracts" / "admin" / "operator_calls.py": operators_module(operators, fans),
        web / "fans" / "documents.ts": _types_module(fans),
        web / "console" / "documents.ts": _types_module(operators, complete=True),
        client / "fan_calls.py": calls_module(fans),  # last: `make` looks at it
    }
    for path, content in parts.items():
        if path.parent.exists():
            path.write_text(content, encoding="utf-8")


def _document(readers: str) -> dict[str, Any]:
    path = ROOT / "features" / "pages" / "openapi" / f"{readers}.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))
