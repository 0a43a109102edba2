"""The generated parts of the clients leave nothing out by accident."""

import importlib
import json

from onsale.client import Client, Operator
from services.gateway.documents import PAGES
from shared.contracts.admin.endpoint import Endpoint
from tools.clients import admin_rows, fan_code
from tools.clients.schemas import operations

FANS = json.loads((PAGES / "openapi" / "fans.json").read_text())


def test_every_operation_has_a_method_or_a_reason_to_have_none() -> None:
    documented = {f"{verb} {path}" for path, verb, _ in operations(FANS)}
    assert documented == fan_code.NAMES.keys() | fan_code.NOT_FOR_CLIENTS
    assert all(callable(getattr(Client, name)) for name in fan_code.NAMES.values())


def test_operators_have_a_method_for_each_endpoint() -> None:
    methods = {name for name in vars(Operator) if not name.startswith("_")}
    assert {"read_room", "apply_queue_event", "refund_order", "export_tickets_csv"} <= methods
    assert len(methods) > 75


def test_rows_read_from_their_source_are_the_rows() -> None:
    read = {(row.module, row.name): (row.method, row.path) for row in admin_rows.rows().values()}
    assert read == {
        (module, name): (row.method, row.path)
        for module in admin_rows.MODULES
        for name, row in vars(importlib.import_module(f"shared.contracts.admin.{module}")).items()
        if isinstance(row, Endpoint)
    }
