"""Every control of the console at a running suite: it does what its form says, and stands in the audit log with who did
it and why. With `--record` the suite's answers are kept for `tests/browser/console`, where the same scripts run.
"""

import pytest

from proof.browser.console.conftest import Follow
from tests.browser.console.scripts.every import SCRIPTS


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_script_at_a_running_suite(follow: Follow, name: str) -> None:
    await follow(name, SCRIPTS[name])
