"""Writes `web/fans/documents.ts`: what fans and shops send and are answered, as types of the JavaScript client."""

import json
from typing import Any

from onsale.maintenance.client_code import MARK, schemas_in_order

KINDS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def types_module(document: dict[str, Any]) -> str:
    """The source of the types."""
    types = [_interface(name, schema) for name, schema in schemas_in_order(document).items()]
    return f"// {MARK}\n\n" + "\n".join(types)


def _interface(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    lines = [
        f"{_comment(value, '  ')}  {field}{'' if field in required else '?'}: {_type(value)};\n"
        for field, value in schema.get("properties", {}).items()
    ]
    return f"{_comment(schema, '')}export interface {name} {{\n{''.join(lines)}}}\n"


def _comment(schema: dict[str, Any], indent: str) -> str:
    text = " ".join(str(schema.get("description", "")).split())
    return f"{indent}/** {text} */\n" if text else ""


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "array":
        inner = _type(schema.get("items", {}))
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values) if isinstance(values, dict) else 'any'}>"
    return KINDS.get(str(kind), "any")
