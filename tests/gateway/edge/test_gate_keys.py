"""The shared part of the edge gates, in Node's own test runner, with a clock that tests set."""

import subprocess
from pathlib import Path

from tests.support.programs import need


def test_keys_outages_settings_and_signatures() -> None:
    script = Path(__file__).with_name("gate.test.mjs")
    ran = subprocess.run([need("node"), "--test", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout
    assert "pass 10" in ran.stdout, ran.stdout
