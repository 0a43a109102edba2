"""A suite that one module has for itself, because its tests change what others rely on."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.engines.engines import fast_directory
from tests.support.running.suite import RunningSuite


@contextmanager
def own_suite(*options: str, **environ: str) -> Iterator[RunningSuite]:
    """A ready suite in a data directory of its own; it must stop with exit code 0."""
    with tempfile.TemporaryDirectory(prefix="onsale-own-", dir=fast_directory()) as folder:
        running = RunningSuite(Path(folder) / "data", *options, port=None, **environ).start()
        try:
            yield running.wait_until_ready()
        finally:
            assert running.stop() == 0, running.log_text()
