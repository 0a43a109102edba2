"""The example of the whole way of a fan, in the page about client libraries, runs as it is printed."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.running.suite import RunningSuite

PAGE = Path(__file__).parents[3] / "docs" / "use" / "client-libraries.md"


def test_the_example_of_a_fan_runs(suite: RunningSuite) -> None:
    [example] = [
        each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "tickets(order)" in each
    ]
    command = [sys.executable, "-P", "-c", example.replace("http://localhost:8000", suite.url)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert re.search(r"order \w+ confirmed 2 tickets", done.stdout), done.stdout + done.stderr
