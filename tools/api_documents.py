"""Writes what is made from the code: `make api-documents`.

Problems and OpenAPI documents to where the gateway serves them, then the clients, which are made from those documents,
then the pages of docs/, whose collectors import the clients.
"""

import json
from pathlib import Path
from typing import Any

from features.pages.gateway.documents import PAGES
from tools import openapi, problem_catalogue
from tools.clients import parts
from tools.reference import pages

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    _write(PAGES / "problems.json", problem_catalogue.catalogue())
    for readers, document in openapi.documents().items():
        _write(PAGES / "openapi" / f"{readers}.json", document, separators=(",", ":"))
    parts.write()
    pages.write(DOCS)


def _write(path: Path, document: Any, **form: Any) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False, **form) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
