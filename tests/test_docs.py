"""What the documents say is so: README's examples run, and its links lead somewhere."""

import html
import re
import subprocess
from pathlib import Path

import pytest

from tests.drills import recoveries
from tests.support.running.suite import RunningSuite

ROOT = Path(__file__).parents[1]
DOCUMENTS = [path for path in ROOT.rglob("*.md") if not {".venv", "node_modules"} & set(path.parts)]

LIVING = [path for path in DOCUMENTS if "decisions" not in path.parts and path.name != "CHANGELOG.md"]
YOURS = {"services/orders/payments/acme.py"}  # which a guide has its reader write


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", LIVING, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_are_named_exist(path: Path) -> None:
    named = set(re.findall(r"`((?:services|shared|onsale|bench|tests|deploy)/[\w./-]+\.\w+)`", path.read_text()))
    assert [name for name in sorted(named - YOURS) if not (ROOT / name).exists()] == []


def test_the_picture_is_drawn_from_its_source() -> None:
    """Every box and every label of the source stands in the picture."""
    source, picture = ((ROOT / "docs" / f"architecture.{kind}").read_text() for kind in ("dot", "svg"))
    boxes = set(re.findall(r"^  (\w+) \[label=", source, re.M))
    assert boxes == {title for title in re.findall(r"<title>(\w+)</title>", picture) if title != "onsale"}
    drawn = {html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", picture)}
    labels = re.findall(r'label="([^"]*)"', source) + re.findall(r"label=<(.*)>\]", source)
    assert {line for label in labels for line in re.split(r"\\n|<br/>", re.sub(r"</?b>", "", label))} <= drawn


def test_the_api_by_example_runs_as_it_stands(suite: RunningSuite, tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", readme.split("## The API by example")[1].split("\n## ")[0], re.S)
    assert len(blocks) == 1
    script = "set -eu\n" + blocks[0].replace("http://localhost:8000", suite.url)
    ran = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_tables_of_recovery_times_are_what_the_drills_measured() -> None:
    rows, readme = recoveries.kept(), (ROOT / "README.md").read_text()
    assert rows
    assert recoveries.with_table(readme, rows) == readme
    assert recoveries.table(rows) in recoveries.PAGE.read_text()


def test_every_make_target_in_readme_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"^make ([a-z-]+)", (ROOT / "README.md").read_text(), re.M)) <= targets
