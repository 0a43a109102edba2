"""Each service starts without the code of the others, and `import queue` finds the standard library."""

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

from shared.features import package_of
from shared.routes import SALE_SERVICES, SERVICES

CREATE_APPS = """
import importlib, os, sys
import fastapi, redis.asyncio, sqlalchemy.ext.asyncio, shared.web.app  # once for all

for name in {all!r}:
    if not os.fork():
        sys.modules.update(dict.fromkeys(other for other in {core!r} if other != name))
        app = importlib.import_module(f"{{name}}.app").create_app()
        os._exit(app.state.settings is None)
    assert os.waitpid(-1, 0)[1] == 0, name
"""


def test_a_service_starts_without_the_code_of_the_others() -> None:
    every, core = ([package_of(service) for service in services] for services in (SERVICES, SALE_SERVICES))
    code = CREATE_APPS.format(all=every, core=core)
    subprocess.run([sys.executable, "-P", "-W", "error", "-c", code], check=True, timeout=60)


def test_services_do_not_shadow_the_standard_librarys_queue() -> None:
    spec = importlib.util.find_spec("queue")
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).is_relative_to(sysconfig.get_path("stdlib"))
