"""The documentation site: it builds without a warning, has every page, and loads nothing from other hosts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.manifests import ROOT

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
