"""The table of acknowledgements: nothing of the published API that changes something is missing in it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from onsale.history.acknowledgements import NOTHING_ACKNOWLEDGED, RECORDED

DOCUMENTS = Path("features/pages/openapi")
MONEY_OR_STOCK = re.compile(
    r"/admin/orders/(\{reference\}|events/\{event_id\}/refund)|/admin/inventory/.*release|/gate/release"
)


def changing_operations(document: str) -> Iterator[tuple[str, str]]:
    """Method and path of what changes something when it succeeds."""
    for path, operations in json.loads((DOCUMENTS / f"{document}.json").read_text())["paths"].items():
        for method, operation in operations.items():
            successful = any(status.startswith("2") for status in operation.get("responses", {}))
            if method in ("post", "put", "patch", "delete") and successful:
                yield method.upper(), path


def published() -> set[tuple[str, str]]:
    operators = {each for each in changing_operations("operators") if MONEY_OR_STOCK.match(each[1])}
    return set(changing_operations("fans")) | operators


def missing(operations: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return operations - set(RECORDED) - set(NOTHING_ACKNOWLEDGED)


def test_every_operation_that_changes_something_is_recorded_or_acknowledges_nothing() -> None:
    assert len(published()) > 25
    assert not missing(published())
    assert not set(RECORDED) & set(NOTHING_ACKNOWLEDGED)


def test_every_row_of_the_table_is_an_operation() -> None:
    every = {
        (method.upper(), path)
        for document in ("fans", "operators")
        for path, operations in json.loads((DOCUMENTS / f"{document}.json").read_text())["paths"].items()
        for method in operations
    }
    assert not (set(RECORDED) | set(NOTHING_ACKNOWLEDGED)) - every


@pytest.mark.parametrize(
    "row", [("POST", "/orders"), ("DELETE", "/events/{event_id}/queue"), ("POST", "/gate/release")]
)
def test_an_operation_missing_in_the_table_is_found(row: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(RECORDED, row)
    assert missing(published()) == {row}
