"""The committed pages: they are what the sources make, as the manifest says, and small."""

import base64
import gzip
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WEB = ROOT / "web"
DIST = {"fans": ROOT / "features/pages/dist", "console": ROOT / "features/console/pages/dist"}
KB = 1024
CONSOLE_BUDGETS = {".js": 90 * KB, ".css": 12 * KB}  # compressed by gzip


def manifest(folder: Path) -> dict[str, dict[str, int | str]]:
    found: dict[str, dict[str, int | str]] = json.loads((folder / "manifest.json").read_text())
    return found


def sha384(content: bytes) -> str:
    return f"sha384-{base64.b64encode(hashlib.sha384(content).digest()).decode()}"


@pytest.mark.parametrize("part", DIST)
def test_the_manifest_tells_every_file(part: str) -> None:
    folder = DIST[part]
    named = manifest(folder)
    files = {path.name for path in folder.iterdir()} - {"manifest.json"}
    assert files == set(named)
    for name, told in named.items():
        content = (folder / name).read_bytes()
        assert (told["bytes"], told["sha384"]) == (len(content), sha384(content)), name


def test_the_document_names_the_digest_of_each_of_its_files() -> None:
    folder = DIST["console"]
    document = (folder / "index.html").read_text()
    named = re.findall(r'/console/assets/([^"]+)" integrity="([^"]+)"', document)
    assert {Path(name).suffix for name, _ in named} == set(CONSOLE_BUDGETS)
    for name, digest in named:
        assert digest == sha384((folder / name).read_bytes()), name
    assert not re.search(r"<script(?![^>]*src=)|<style|style=|https?://", document), (
        "nothing inline, nothing from elsewhere"
    )


def test_the_files_keep_their_budgets() -> None:
    for suffix, most in CONSOLE_BUDGETS.items():
        sizes = {path.name: len(gzip.compress(path.read_bytes(), 9)) for path in DIST["console"].glob(f"*{suffix}")}
        assert sum(sizes.values()) <= most, sizes


@pytest.mark.parametrize("part", DIST)
def test_the_scripts_make_no_markup_from_text(part: str) -> None:
    for script in DIST[part].glob("*.js"):
        assert not re.search(r"\beval\(|new Function|insertAdjacentHTML|document\.write", script.read_text()), script
    for source in [*(WEB / part).rglob("*.ts*"), *(WEB / part).rglob("*.js")]:
        assert not re.search(r"innerHTML|dangerouslySetInnerHTML", source.read_text()), source


def test_the_sources_make_these_files(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not (WEB / "node_modules/esbuild").is_dir():
        pytest.skip("node or its packages are not installed: npm ci in web/")
    subprocess.run([node, "build.mjs", tmp_path], cwd=WEB, check=True, capture_output=True, timeout=60)
    for part, folder in DIST.items():
        built, committed = ({path.name: path.read_bytes() for path in of.iterdir()} for of in (tmp_path / part, folder))
        assert built.keys() == committed.keys()
        assert [name for name in built if built[name] != committed[name]] == [], "run `make pages`"
