"""Each service starts without the code of the others, and `import queue` finds the standard library."""

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from shared.routes import SERVICES

CREATE_APP = """
import sys
sys.modules.update(dict.fromkeys({others!r}))
from services.{name}.app import create_app
app = create_app()
assert app.state.settings is not None
"""


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_starts_without_the_code_of_the_others(name: str) -> None:
    others = [f"services.{other}" for other in SERVICES if other != name]
    code = CREATE_APP.format(others=others, name=name)
    subprocess.run([sys.executable, "-P", "-W", "error", "-c", code], check=True, timeout=30)


def test_services_do_not_shadow_the_standard_librarys_queue() -> None:
    spec = importlib.util.find_spec("queue")
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).is_relative_to(sysconfig.get_path("stdlib"))
