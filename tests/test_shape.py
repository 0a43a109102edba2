"""The shape of the code: sizes of modules and folders, names, layers, handlers without SQL, typed responses."""

import ast
import importlib
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from shared.features import package_of
from shared.routes import SERVICES
from shared.web.api_document import operations

ROOT = Path(__file__).parents[1]
TOP = ("services", "shared", "onsale", "features")


def product(folder: Path) -> list[Path]:
    """Its Python files without tests."""
    return sorted(path for path in folder.rglob("*.py") if "tests" not in path.relative_to(ROOT).parts)


SOURCE = [path for folder in TOP for path in product(ROOT / folder)]
MODULES = [path for path in SOURCE if "versions" not in path.parts]
FOLDERS = sorted(
    {path.parent for top in (*TOP, "bench", "tests", "tools") for path in (ROOT / top).rglob("*.py")}
    - {path.parent for path in SOURCE if {"migrations", "versions"} & set(path.parts) or path.parent.name == "services"}
)
MODULES_MAX = 12
FILE_LINES_MAX, LUA_LINES_MAX, CORE_CODE_LINES_MAX = 600, 260, 26_700
LAYOUT_TOKENS = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
GENERATED = ("onsale/client/fan_calls.py", "onsale/client/fan_documents.py", "shared/contracts/admin/operator_calls.py")
VAGUE_NAMES = {"utils", "helpers", "common", "base", "core", "misc", "constants", "manager", "types", "models"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_a_module_is_one_thing_with_a_name() -> None:
    generated = {ROOT / file for file in GENERATED}
    written = [path for path in MODULES if path not in generated]
    long = [name(path) for path in written if len(path.read_text().splitlines()) > FILE_LINES_MAX]
    assert not long, "is it two things?"
    assert not [name(path) for path in MODULES if path.stem in VAGUE_NAMES]


def test_a_folder_holds_at_most_twelve_modules() -> None:
    found = {folder: {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"} for folder in FOLDERS}
    assert not {name(folder): len(stems) for folder, stems in found.items() if len(stems) > MODULES_MAX}


def lines_of_code(source: str) -> int:
    """The lines of a module that are neither blank nor comments nor docstrings."""
    code = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT_TOKENS:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            code.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(code)


def test_the_core_stays_small() -> None:
    """What is left without the features is what somebody reads who wants to understand a sale."""
    generated = {ROOT / file for file in GENERATED}
    core = [path for path in MODULES if path.relative_to(ROOT).parts[0] in ("services", "shared")]
    written = [path for path in core if path not in generated and "migrations" not in path.parts]
    assert sum(lines_of_code(path.read_text()) for path in written) <= CORE_CODE_LINES_MAX


SERVICE_FOLDERS: dict[str, Path] = {service: ROOT.joinpath(*package_of(service).split(".")) for service in SERVICES}


def test_only_the_app_of_a_service_opens_connections() -> None:
    databases = r"\b(postgres|redis)\.connect\(|create_async_engine\(|Redis\.from_url\("
    opens = re.compile(rf"{databases}|AsyncClient\(|ClientSession\(|\boutgoing\(")
    others = [
        path for folder in SERVICE_FOLDERS.values() for path in product(folder) if not {"app.py", "cli"} & {*path.parts}
    ]
    assert not [name(path) for path in others if opens.search(path.read_text())]


def test_a_lua_script_is_short_and_names_no_literal_key() -> None:
    for path in sorted(path for top in TOP for path in (ROOT / top).rglob("*.lua")):
        text = path.read_text()
        assert len(text.splitlines()) <= LUA_LINES_MAX, name(path)
        literal_key = re.search(r"redis\.call\('\w+', *['\"]", text.replace("redis.call('TIME')", ""))
        assert not literal_key, name(path)


def test_a_service_is_a_package_without_a_main() -> None:
    for folder in SERVICE_FOLDERS.values():
        assert not (folder / "__main__.py").exists()
        assert (folder / "__init__.py").exists()


def test_no_test_sleeps_for_a_fixed_time() -> None:
    sleeps = re.compile(r"\b(time\.sleep\(|asyncio\.sleep\([1-9])")
    tests = [path for top in ("tests", "proof", "features") for path in (ROOT / top).rglob("test_*.py")]
    assert not [name(path) for path in tests if sleeps.search(path.read_text())]


def test_folders_of_tests_are_not_packages() -> None:
    folders = [ROOT / "tests", *(ROOT / "features").glob("*/tests")]
    assert not [name(path) for folder in folders for path in folder.rglob("__init__.py")]


def test_no_lock_file_names_a_host() -> None:
    for lock in ROOT.glob("*.lock"):
        assert "://" not in lock.read_text()


PACKAGES = {
    **{name(folder): folder for folder in SERVICE_FOLDERS.values() if folder.parent.name == "services"},
    "shared": ROOT / "shared",
    "onsale": ROOT / "onsale",
    "features": ROOT / "features",
    "bench": ROOT / "bench",
    "tools": ROOT / "tools",
}
RESERVED_CLASSES = {"State", "Settings", "Tuning"}
BANNED_WORDS = {
    "aside", "asked", "beside", "cashier", "courier", "couriers", "desk", "door", "doors", "ear", "ears", "hear",
    "heard", "house", "keeper", "look", "looked", "postman", "pulse", "said", "seen", "street", "till", "told",
    "turnstile", "wish", "wishes",
}  # fmt: skip
ALLOWED_NAMES = {"first_seen"}
SQL_VERB = re.compile(r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|CREATE|ALTER)\s")
SQL_LITERAL_LINES_MAX, POSITIONAL_MAX = 3, 5
VARIADIC = {
    "Table", "Index", "chain", "gather", "join", "max", "min", "print", "select", "with_only_columns",
    "answer", "execute", "fetch", "rows", "client.eval", "keys.only", "Script.load",
}  # fmt: skip


@cache
def modules(package: str) -> list[tuple[Path, ast.Module]]:
    found = product(PACKAGES[package]) if package in TOP else sorted(PACKAGES[package].rglob("*.py"))
    paths = [path for path in found if "versions" not in path.parts]
    return [(path, ast.parse(path.read_text())) for path in paths]


def test_no_two_classes_have_the_same_name() -> None:
    places: dict[str, list[str]] = {}
    for package in (package for package in PACKAGES if package.startswith(("services", "shared", "features"))):
        for path, tree in modules(package):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(name(path))
    duplicates = {
        class_name: paths
        for class_name, paths in places.items()
        if len(paths) > 1 and class_name not in RESERVED_CLASSES
    }
    assert not duplicates


def declared_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names of functions, classes and parameters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def assigned_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names of constants, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=identifier, ctx=ast.Store()) | ast.Attribute(attr=identifier, ctx=ast.Store()):
                yield node.lineno, identifier


@pytest.mark.parametrize("package", PACKAGES)
def test_no_name_contains_a_banned_word(package: str) -> None:
    found = [
        f"{name(path)}:{line} {identifier}"
        for path, tree in modules(package)
        for line, identifier in (
            *declared_names(tree),
            *(
                assigned_names(tree)
                if package not in ("onsale", "bench", "tools") and not {"contracts", "schemas.py"} & {*path.parts}
                else ()
            ),
        )
        if identifier not in ALLOWED_NAMES
        and BANNED_WORDS & set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", identifier).lower().split("_"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_call_passes_more_than_five_positional_arguments(package: str) -> None:
    found = [
        f"{name(path)}:{node.lineno} {ast.unparse(node.func)}"
        for path, tree in modules(package)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and not {ast.unparse(node.func), ast.unparse(node.func).rpartition(".")[2]} & VARIADIC
        and len([each for each in node.args if not isinstance(each, ast.Starred)]) > POSITIONAL_MAX
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_sql_literals_have_at_most_three_lines(package: str) -> None:
    found = []
    for path, tree in modules(package):
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                lines = len(node.value.strip().splitlines())
                if SQL_VERB.match(node.value) and lines > SQL_LITERAL_LINES_MAX:
                    found.append(f"{name(path)}:{node.lineno} {lines} lines")
    assert not found, "\n".join(found)


def is_handler(path: Path, service: str) -> bool:
    relative = path.relative_to(SERVICE_FOLDERS[service])
    return relative.parts[0] in ("api", "admin") or relative.name in ("api.py", "internal.py")


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The top-level packages that the statement imports from."""
    imports = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    return [module.partition(".")[0] for module in imports]


@pytest.mark.parametrize("service", SERVICES)
def test_a_handler_runs_no_sql_and_no_redis_command(service: str) -> None:
    found = []
    for path in product(SERVICE_FOLDERS[service]):
        if not is_handler(path, service):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import() | ast.ImportFrom() if {"sqlalchemy", "redis"} & set(imported(node)):
                    found.append(f"{name(path)}:{node.lineno} {ast.unparse(node)}")
                case ast.Call(func=ast.Attribute(attr="begin" | "connect" | "execute")):
                    found.append(f"{name(path)}:{node.lineno} {ast.unparse(node.func)}")
    assert not found, "\n".join(found)


def is_typed(schema: dict[str, Any]) -> bool:
    """A named model, a list of one, or one of several."""
    choices = schema.get("anyOf") or schema.get("oneOf") or []
    return (
        "$ref" in schema
        or (schema.get("type") == "array" and is_typed(schema.get("items", {})))
        or (bool(choices) and all(choice == {"type": "null"} or is_typed(choice) for choice in choices))
    )


@pytest.mark.parametrize("service", SERVICES)
def test_every_response_has_a_model_a_media_type_or_headers(service: str) -> None:
    app = importlib.import_module(f"{package_of(service)}.app").create_app()
    found = []
    for path, method, operation in operations(app.openapi()):
        for status, response in operation["responses"].items():
            content = response.get("content", {})
            schema = content.get("application/json", {}).get("schema")
            untyped = not (content or response.get("headers")) if schema is None else not is_typed(schema)
            if status.startswith("2") and status != "204" and untyped:
                found.append(f"{method} {path} {status}")
    assert not found, "\n".join(found)
