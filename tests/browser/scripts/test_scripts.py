"""The scripts of the pages without a browser: `web/tests`, run by node."""

import subprocess

import pytest

from tests.browser.scripts.node import NODE, WEB, needs_node


@needs_node
def test_the_tests_of_the_pages_scripts_pass() -> None:
    if not (WEB / "node_modules/esbuild").is_dir():
        pytest.skip("node's packages are not installed: npm ci in web/")
    assert NODE
    run = subprocess.run([NODE, "test.mjs"], cwd=WEB, check=False, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr
