"""SECURITY.md names a test for each promise, and each of these tests exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEST = re.compile(r"`((?:tests|features)/[\w/]+\.py)::(test_\w+)`")
ROW = re.compile(r"^\| (?!promise |---)(.+?) \| (.+) \|$", re.M)


def test_every_promise_names_tests_that_exist() -> None:
    promises = ROW.findall((ROOT / "SECURITY.md").read_text())
    assert len(promises) > 20
    for promise, tests in promises:
        named = TEST.findall(tests)
        assert named, f"no test for: {promise}"
        for path, name in named:
            assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.M), f"{path} has no {name}"
