"""The image's recipe is clean, copies what there is, and leaves out what is not named."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.deploy.manifests import DEPLOY, ROOT, image_environment

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
WITH_US = ("shared", "services", "onsale")
PACKED = """
from setuptools.dist import Distribution
package = Distribution({"script_name": "setup.py"})
package.parse_config_files()
files = package.get_command_obj("build_py")
files.ensure_finalized()
print(*files.get_source_files(), *(f"{folder}/{name}" for _, folder, _, names in files.data_files for name in names))
"""


def test_hadolint_has_nothing_to_say() -> None:
    program = Path(sys.executable).with_name("hadolint")
    ran = subprocess.run([program, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


def test_what_is_copied_is_there_and_let_through() -> None:
    copied = {word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.M) for word in line.split()}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*", "nothing that is not named"
    assert copied == {line[1:] for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)


def test_it_is_built_from_the_lock_and_runs_as_nobody_in_production() -> None:
    assert "pip install --require-hashes --only-binary=:all: -r requirements.lock" in DOCKERFILE
    assert re.search(r"^USER 10001:10001$", DOCKERFILE, re.M)
    assert image_environment()["ONSALE_ENVIRONMENT"] == "production"
    lock = (ROOT / "requirements.lock").read_text()
    left_out = re.findall(r"pip uninstall --yes ([^\n]*)", DOCKERFILE)[0].split()
    assert all(re.search(rf"^{name}==", lock, re.M) for name in left_out)


def test_the_package_has_every_file_of_ours(tmp_path: Path) -> None:
    """What the image installs is what the repository has: scripts, statements, migrations, pages."""
    for name in WITH_US:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    ran = subprocess.run([sys.executable, "-c", PACKED], cwd=tmp_path, capture_output=True, text=True, check=True)
    ours = {
        str(path.relative_to(tmp_path)) for name in WITH_US for path in (tmp_path / name).rglob("*") if path.is_file()
    }
    assert set(ran.stdout.split()) == ours
