"""Every command of the pages of `docs/start` runs against the suite, in the order of the page."""

from pathlib import Path

import pytest

from tests.journeys.buying.test_examples import PAGES, ROOT, folder, run_page  # noqa: F401 - a fixture
from tests.support.running.suite import RunningSuite

LONG = sorted({*(ROOT / "docs" / "start").glob("*.md")} - {*PAGES})


@pytest.mark.parametrize("path", LONG, ids=lambda path: path.stem)
def test_every_command_of_the_page_runs(folder: Path, suite: RunningSuite, path: Path) -> None:  # noqa: F811
    run_page(folder, suite, path)
