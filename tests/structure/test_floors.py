"""Folders lie on floors: each imports what lies below it, so no folders form a circle, in Python as in the pages.

Every SQL statement of the services has a case of `proof/plans`, which holds its cost at fifty thousand rows.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from proof.plans import inventory_cases, orders_cases, queue_cases
from proof.plans.statements import statements
from shared.features import package_of
from shared.routes import SERVICES

ROOT = Path(__file__).parents[2]
PACKAGES = (*map(package_of, SERVICES), "shared", "onsale", "features")
Graph = Mapping[str, set[str]]


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / Path(*package.split("."))).rglob("*.py")):
        if not {"versions", "tests"} & {*path.relative_to(ROOT).parts}:
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def folders(package: str) -> Graph:
    """The folders of a package, its top modules among them, and those that each imports from."""
    known = dict(modules(package))

    def folder(name: str) -> str | None:
        while name not in known and name.startswith(f"{package}."):
            name = name.rpartition(".")[0]
        below = name.removeprefix(f"{package}.")
        return below.partition(".")[0] if name in known and name != package else None

    found: dict[str, set[str]] = {}
    for module, path in known.items():
        targets = {folder(name) for name in imported(path) if name.startswith(f"{package}.")}
        found.setdefault(folder(module) or "", set()).update(targets - {None, folder(module)})  # type: ignore[arg-type]
    return found


def files(package: str) -> Graph:
    """The modules of a package, and those that each imports, also where only a type is taken."""
    known = dict(modules(package))
    return {
        module: {name if name in known else name.rpartition(".")[0] for name in imported(path)}
        & known.keys() - {module}
        for module, path in known.items()
    }


def pages() -> Graph:
    """The sources of the pages, and those that each imports."""
    sources = [path for path in (ROOT / "web").rglob("*.[jt]s*") if "node_modules" not in path.parts]
    names = {str(path.with_suffix("")): path.name for path in sources} | {
        str(path.parent): path.name for path in sources if path.stem == "index"
    }
    return {
        str(path.with_suffix("")): {
            str(target.with_suffix("") if target.suffix in (".js", ".ts", ".tsx") else target)
            for target in (
                (path.parent / name).resolve()
                for name in re.findall(r'(?:from|import)\s*\(?"(\.[^"]*)"', path.read_text())
            )
            if str(target.with_suffix("")) in names or str(target) in names
        }
        for path in sources
    }


def circles(graph: Graph) -> set[str]:
    """The nodes from which a way leads back to themselves."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = list(graph.get(start, ()))
        while todo:
            if (node := todo.pop()) not in seen:
                seen.add(node)
                todo += graph.get(node, ())
        return seen

    return {node for node in graph if node in reached(node)}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_folders_form_a_circle(package: str) -> None:
    assert not circles(folders(package))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_modules_form_a_circle(package: str) -> None:
    assert not circles(files(package))


def test_no_sources_of_the_pages_form_a_circle() -> None:
    assert not circles(pages())


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == {"b", "c"}


CASES = {"inventory": inventory_cases, "queue": queue_cases, "orders": orders_cases}


def test_every_statement_has_a_case() -> None:
    """A new one is added to `<service>_cases.py`, with the number of rows it concerns."""
    for service, cases in CASES.items():
        assert statements(service).keys() == cases.CASES.keys(), service
