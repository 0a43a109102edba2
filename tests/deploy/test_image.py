"""The image's recipe is clean, copies what there is, and leaves out what is not named."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.deploy.manifests import DEPLOY, ROOT, image_environment

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
WITH_US = ("shared", "services", "onsale")


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


@pytest.mark.drill
def test_the_package_has_every_file_of_ours(tmp_path: Path) -> None:
    """What the image installs is what the repository has: scripts, statements, migrations, pages."""
    for name in (*WITH_US, "pyproject.toml", "README.md", "LICENSE"):
        subprocess.run(["cp", "-r", ROOT / name, tmp_path], check=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        tmp_path,
        tmp_path,
    ]
    subprocess.run(command, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith(WITH_US)}
    ours = {
        str(path.relative_to(ROOT)) for name in WITH_US for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }  # fmt: skip
    assert packed == ours
