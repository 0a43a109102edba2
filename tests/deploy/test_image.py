"""The Dockerfile passes hadolint, copies existing files only, and installs every file of the package."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.deploy.manifests import DEPLOY, ROOT, image_environment
from tests.support.packages import PROJECT, installed_with

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
PACKAGES = ("shared", "services", "onsale", "features")
PRINT_SOURCES = """
from setuptools.dist import Distribution
package = Distribution({"script_name": "setup.py"})
package.parse_config_files()
files = package.get_command_obj("build_py")
files.ensure_finalized()
print(*files.get_source_files(), *(f"{folder}/{name}" for _, folder, _, names in files.data_files for name in names))
"""


def test_hadolint_reports_nothing() -> None:
    program = Path(sys.executable).with_name("hadolint")
    result = subprocess.run([program, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_copied_files_exist_and_are_not_ignored() -> None:
    copied = {name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.M) for name in line.split()}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*", "files that are not named must be ignored"
    assert copied == {line[1:] for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_installs_the_lock_file_and_runs_without_root_in_production() -> None:
    assert "pip install --no-deps --require-hashes --only-binary=:all: -r requirements.lock" in DOCKERFILE
    assert re.search(r"^USER 10001:10001$", DOCKERFILE, re.M)
    assert image_environment()["ONSALE_ENVIRONMENT"] == "production"
    locked = set(re.findall(r"^([\w-]+)==", (ROOT / "requirements.lock").read_text(), re.M))
    production = installed_with("onsale")
    assert locked | {"onsale"} >= production
    assert not locked & (installed_with(*PROJECT["optional-dependencies"]["embedded"]) - production)


def test_the_package_contains_every_file_of_the_repository(tmp_path: Path) -> None:
    """Lua scripts, SQL files, migrations and pages too."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "tests", "*.md"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    result = subprocess.run(
        [sys.executable, "-c", PRINT_SOURCES], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    expected = {
        str(path.relative_to(tmp_path)) for name in PACKAGES for path in (tmp_path / name).rglob("*") if path.is_file()
    }
    assert set(result.stdout.split()) == expected
