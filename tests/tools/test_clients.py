"""The generated parts of the clients leave nothing out by accident."""

import json
import re
from pathlib import Path

from features.pages.gateway.documents import PAGES
from onsale.client import Client, Operator
from shared.contracts.admin.operation import FILE, models
from shared.contracts.admin.operator_calls import OPERATIONS
from tools.clients import fan_code, operator_code
from tools.clients.schemas import operations

FANS, OPERATORS = (json.loads((PAGES / "openapi" / f"{each}.json").read_text()) for each in ("fans", "operators"))
ROOT = Path(__file__).parents[2]
BY_NAME = (
    re.compile(r'\badmin\.(?:call|pages)\(\s*"(\w+)"'), re.compile(r'add_action\(\s*app, "[\w-]+", "(\w+)"'),
)  # fmt: skip


def test_every_operation_has_a_method_or_a_reason_to_have_none() -> None:
    documented = {f"{verb} {path}" for path, verb, _ in operations(FANS)}
    assert documented == fan_code.NAMES.keys() | fan_code.NOT_FOR_CLIENTS
    assert all(callable(getattr(Client, name)) for name in fan_code.NAMES.values())


def test_every_operation_for_operators_has_a_row_and_a_method() -> None:
    documented = {operation["operationId"]: f"{verb} {path}" for path, verb, operation in operations(OPERATORS)}
    rows = {name: f"{row.method.lower()} {row.path}" for name, row in OPERATIONS.items()}
    of_fans = {name: f"get {path}" for path, (name, _) in operator_code.OF_FANS.items()}
    assert (
        rows == {name: call for name, call in documented.items() if name not in operator_code.NOT_FOR_CLIENTS} | of_fans
    )
    assert all(callable(getattr(Operator, name)) for name in OPERATIONS)


def test_every_model_of_a_row_is_found() -> None:
    for row in OPERATIONS.values():
        for names in {row.answer, row.body} - {None, FILE}:
            assert models(str(names)).json_schema()


def test_what_is_called_by_its_name_is_an_operation() -> None:
    sources = [
        path.read_text() for top in ("onsale", "services", "shared", "features") for path in (ROOT / top).rglob("*.py")
    ]
    named = {name for source in sources for pattern in BY_NAME for name in pattern.findall(source)}
    assert {"rebuild_room", "list_events_on_sale"} <= named <= OPERATIONS.keys()
