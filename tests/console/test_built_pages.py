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

ROOT = Path(__file__).parents[2]
WEB, DIST = ROOT / "web", ROOT / "services/console/pages/dist"
KB = 1024
BUDGETS = {".js": 90 * KB, ".css": 12 * KB}  # compressed by gzip
COMPRESSED = (".br", ".gz")


def manifest() -> dict[str, dict[str, int | str]]:
    found: dict[str, dict[str, int | str]] = json.loads((DIST / "manifest.json").read_text())
    return found


def sha384(content: bytes) -> str:
    return f"sha384-{base64.b64encode(hashlib.sha384(content).digest()).decode()}"


def test_the_manifest_tells_every_file() -> None:
    named = manifest()
    files = {path.name for path in DIST.iterdir()} - {"manifest.json"}
    assert files == {name + suffix for name in named for suffix in ("", *COMPRESSED)}
    for name, told in named.items():
        content = (DIST / name).read_bytes()
        assert (told["bytes"], told["sha384"]) == (len(content), sha384(content)), name
        assert gzip.decompress((DIST / f"{name}.gz").read_bytes()) == content
        assert (told["gz"], told["br"]) == tuple(
            (DIST / name).with_name(name + end).stat().st_size for end in (".gz", ".br")
        )


def test_the_document_names_the_digest_of_each_of_its_files() -> None:
    document = (DIST / "index.html").read_text()
    named = re.findall(r'/console/assets/([^"]+)" integrity="([^"]+)"', document)
    assert {Path(name).suffix for name, _ in named} == set(BUDGETS)
    for name, digest in named:
        assert digest == sha384((DIST / name).read_bytes()), name
    assert not re.search(r"<script(?![^>]*src=)|<style|style=|https?://", document), (
        "nothing inline, nothing from elsewhere"
    )


def test_the_files_keep_their_budgets() -> None:
    for suffix, most in BUDGETS.items():
        sizes = {path.name: (DIST / f"{path.name}.gz").stat().st_size for path in DIST.glob(f"*{suffix}")}
        assert sum(sizes.values()) <= most, sizes


def test_the_script_makes_no_markup_from_text() -> None:
    [script] = DIST.glob("*.js")
    assert not re.search(r"\beval\(|new Function|insertAdjacentHTML|document\.write", script.read_text())
    for source in (WEB / "console").rglob("*.ts*"):
        assert not re.search(r"innerHTML|dangerouslySetInnerHTML", source.read_text()), source


def test_the_sources_make_these_files(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not (WEB / "node_modules/esbuild").is_dir():
        pytest.skip("node or its packages are not installed: npm ci in web/")
    subprocess.run([node, "build.mjs", tmp_path], cwd=WEB, check=True, capture_output=True, timeout=60)
    built, committed = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in (tmp_path, DIST))
    assert built.keys() == committed.keys()
    assert [name for name in built if built[name] != committed[name]] == [], "run `make pages`"
