"""Writes the generated parts of the clients, from the OpenAPI documents: `python -m onsale.maintenance.clients`.

`make api-documents` runs it after it wrote the documents; a test fails when a part differs from them.
"""

import json
from pathlib import Path
from typing import Any

from onsale.maintenance.client_code import calls_module, documents_module
from onsale.maintenance.javascript_types import types_module
from onsale.maintenance.operator_client_code import operators_module

ROOT = Path(__file__).parents[2]


def parts() -> dict[Path, str]:
    """The files and what they contain."""
    client = ROOT / "onsale" / "client"
    fans, operators = _document("fans"), _document("operators")
    return {
        client / "fan_documents.py": documents_module(fans),
        client / "fan_calls.py": calls_module(fans),
        client / "operator_calls.py": operators_module(operators),
        ROOT / "web" / "fans" / "documents.ts": types_module(fans),
    }


def _document(readers: str) -> dict[str, Any]:
    path = ROOT / "services" / "gateway" / "pages" / "openapi" / f"{readers}.json"
    return dict(json.loads(path.read_text()))


if __name__ == "__main__":
    for path, content in parts().items():
        path.write_text(content)
