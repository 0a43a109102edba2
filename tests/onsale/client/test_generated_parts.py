"""The generated parts of the clients match the OpenAPI documents, and leave nothing out by accident."""

import json
from pathlib import Path

import pytest

from onsale.client import Client, Operator
from onsale.maintenance import client_code
from onsale.maintenance.clients import ROOT, parts
from shared.web.api_document import operations

PARTS = parts()
FANS = json.loads((ROOT / "services" / "gateway" / "pages" / "openapi" / "fans.json").read_text())


@pytest.mark.parametrize("path", PARTS, ids=lambda path: path.name)
def test_a_generated_part_is_what_the_generator_makes(path: Path) -> None:
    assert path.read_text() == PARTS[path], "make api-documents"


def test_every_operation_has_a_method_or_a_reason_to_have_none() -> None:
    documented = {f"{verb} {path}" for path, verb, _ in operations(FANS)}
    assert documented == client_code.NAMES.keys() | client_code.NOT_FOR_CLIENTS
    assert all(callable(getattr(Client, name)) for name in client_code.NAMES.values())


def test_operators_have_a_method_for_each_endpoint() -> None:
    methods = {name for name in vars(Operator) if not name.startswith("_")}
    assert {"read_room", "apply_queue_event", "refund_order", "export_tickets_csv"} <= methods
    assert len(methods) > 75
