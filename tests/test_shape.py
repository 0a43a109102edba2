"""The shape of the tree: rooms of a size one can take in, names that say something, doors where they belong."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.web.routes import SERVICES

ROOT = Path(__file__).parents[1]
TOP = ("services", "shared", "onsale")
SOURCE = sorted(path for folder in TOP for path in (ROOT / folder).rglob("*.py"))
OURS = [path for path in SOURCE if "versions" not in path.parts]
FOLDERS = sorted(
    {path.parent for top in (*TOP, "bench", "tests") for path in (ROOT / top).rglob("*.py")}
    - {path.parent for path in SOURCE if {"migrations", "versions"} & set(path.parts) or path.parent.name == "services"}
)
MODULES_MIN, MODULES_MAX = 3, 12
FILE_LINES_MAX, FUNCTION_LINES_MAX, LUA_LINES_MAX = 400, 50, 260
EMPTY_NAMES = {"utils", "helpers", "common", "base", "core", "misc", "constants", "manager", "types", "models"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", OURS, ids=name)
def test_a_room_can_be_taken_in(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= FILE_LINES_MAX, "it is two rooms"
    assert path.stem not in EMPTY_NAMES
    for function in functions(path):
        lines = (function.end_lineno or 0) - function.lineno + 1
        assert lines <= FUNCTION_LINES_MAX, f"{function.name} is two functions"


@pytest.mark.parametrize("folder", FOLDERS, ids=name)
def test_a_folder_is_one_domain_of_three_to_twelve_modules(folder: Path) -> None:
    modules = [path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "__main__")]
    at_least = 0 if folder.parent == ROOT or (ROOT / "tests") in folder.parents else MODULES_MIN
    assert at_least <= len(modules) <= MODULES_MAX, modules


@pytest.mark.parametrize("path", OURS, ids=name)
def test_only_app_opens_connections(path: Path) -> None:
    if path.parts[len(ROOT.parts)] == "services" and path.name != "app.py":
        text = path.read_text()
        engines = r"\b(postgres|redis)\.connect\(|create_async_engine\(|Redis\.from_url\("
        assert not re.search(rf"{engines}|AsyncClient\(|ClientSession\(|\boutgoing\(", text)


@pytest.mark.parametrize("path", sorted((ROOT / "services").rglob("*.lua")), ids=name)
def test_a_script_is_short_and_only_touches_the_keys_it_was_given(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LUA_LINES_MAX
    assert not re.search(r"redis\.call\('\w+', *['\"]", text.replace("redis.call('TIME')", "")), "a literal key"


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_runs_from_inside_services(service: str) -> None:
    assert not (ROOT / "services" / service / "__main__.py").exists()
    assert (ROOT / "services" / service / "__init__.py").exists()


def test_tests_wait_for_something_and_never_just_wait() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            said = ast.unparse(call)
            assert not re.match(r"(time\.sleep\(|asyncio\.sleep\([1-9])", said), f"{name(path)}:{call.lineno} {said}"


def test_tests_are_not_packages() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_no_lock_file_names_a_host() -> None:
    for lock in ROOT.glob("*.lock"):
        assert "://" not in lock.read_text()
