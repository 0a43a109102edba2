"""The documents are correct: links and files exist, examples run, and figures agree with their sources."""

import html
import re
import subprocess
from pathlib import Path

import pytest

from tests.drills import recoveries
from tests.support.running.suite import RunningSuite

ROOT = Path(__file__).parents[1]
DOCUMENTS = [path for path in ROOT.rglob("*.md") if not {".venv", "node_modules"} & set(path.parts)]

MAINTAINED = [path for path in DOCUMENTS if "decisions" not in path.parts and path.name != "CHANGELOG.md"]
EXAMPLES = {"services/orders/payments/acme.py"}  # the reader of a guide writes it


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_has_a_target(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} (.+)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.S | re.M), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "").strip().lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
        if found[name]:
            found[f"{name}-{found[name]}"] = 0
    return set(found)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_anchor_of_a_link_is_a_heading(path: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", path.read_text()):
        assert anchor in anchors((path.parent / target) if target else path), f"{target}#{anchor}"


@pytest.mark.parametrize("path", MAINTAINED, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_named_in_a_document_exists(path: Path) -> None:
    named = set(re.findall(r"`((?:services|shared|onsale|bench|tests|deploy)/[\w./-]+\.\w+)`", path.read_text()))
    assert [name for name in sorted(named - EXAMPLES) if not (ROOT / name).exists()] == []


def test_the_architecture_diagram_is_drawn_from_its_source() -> None:
    source, picture = ((ROOT / "docs" / "images" / f"architecture.{kind}").read_text() for kind in ("dot", "svg"))
    boxes = set(re.findall(r"^  (\w+) \[label=", source, re.M))
    assert boxes == {title for title in re.findall(r"<title>(\w+)</title>", picture) if title != "onsale"}
    drawn = {html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", picture)}
    labels = re.findall(r'label="([^"]*)"', source) + re.findall(r"label=<(.*)>\]", source)
    assert {line for label in labels for line in re.split(r"\\n|<br/>", re.sub(r"</?b>", "", label))} <= drawn


def test_the_api_example_of_the_readme_runs_unchanged(suite: RunningSuite, tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", readme.split("## The API by example")[1].split("\n## ")[0], re.S)
    assert len(blocks) == 1
    script = "set -eu\n" + blocks[0].replace("http://localhost:8000", suite.url)
    result = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_tables_of_recovery_times_show_what_the_drills_measured() -> None:
    rows, readme = recoveries.kept(), (ROOT / "README.md").read_text()
    assert rows
    assert recoveries.with_table(readme, rows) == readme
    assert recoveries.table(rows) in recoveries.PAGE.read_text()


def test_every_make_target_in_the_readme_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"^make ([a-z-]+)", (ROOT / "README.md").read_text(), re.M)) <= targets
