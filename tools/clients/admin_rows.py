"""The rows of `shared/contracts/admin`, read from their source: a build has no pydantic to import them with."""

import ast
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[2] / "shared" / "contracts" / "admin"
MODULES = ("queue", "inventory", "orders", "prices", "order_reports", "console", "approvals")


class Row(NamedTuple):
    """An endpoint: the module and name of its row, and its models as code; None where it has no body or answer."""

    module: str
    name: str
    method: str
    path: str
    answer: str | None
    body: str | None


def rows() -> dict[tuple[str, str], Row]:
    """Every row, by method and path."""
    found = (row for module in MODULES for row in _rows(module))
    return {(row.method, row.path): row for row in found}


def _rows(module: str) -> list[Row]:
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    homes = {  # the modules of the models that are imported
        alias.name: str(node.module).rpartition(".")[2]
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    paths, found = dict[str, str](), list[Row]()
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                pass
            case _:
                continue
        match value:
            case ast.Constant(value=str(text)):
                paths[name] = text
            case ast.Call(func=ast.Name(id="Endpoint"), args=[ast.Constant(value=method), path, answer, *body]):
                address = str(path.value) if isinstance(path, ast.Constant) else paths[ast.unparse(path)]
                models = [_code(each, module, homes) for each in (answer, *body)]
                found.append(Row(module, name, str(method), address, models[0], *models[1:] or [None]))
    return found


def _code(model: ast.expr, module: str, homes: dict[str, str]) -> str | None:
    """`queue.RoomDryRun | queue.RoomView`"""
    if ast.unparse(model) in ("NoneType", "type(None)"):
        return None
    names = (each.strip() for each in ast.unparse(model).split("|"))
    return " | ".join(f"{homes.get(name, module)}.{name}" for name in names)
