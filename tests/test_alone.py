"""A service is a folder that starts with the other four deleted, and `queue` stays the standard library's."""

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from shared.web.routes import SERVICES

ALONE = """
import sys
sys.modules.update(dict.fromkeys({others!r}))
from services.{name}.app import create_app
app = create_app()
assert app.state.settings is not None
"""


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_starts_without_its_neighbours(name: str) -> None:
    others = [f"services.{other}" for other in SERVICES if other != name]
    code = ALONE.format(others=others, name=name)
    subprocess.run([sys.executable, "-P", "-W", "error", "-c", code], check=True, timeout=30)


def test_the_standard_librarys_queue_is_not_shadowed() -> None:
    found = importlib.util.find_spec("queue")
    assert found is not None
    assert found.origin is not None
    assert Path(found.origin).is_relative_to(sysconfig.get_path("stdlib"))
