"""Runs the steps of a guide as they are written: the shell blocks of its page, with free ports in place of its own."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onsale.local.ports import free_port

DOCS = Path(__file__).parents[2] / "docs"
PORT = re.compile(r"(?<=127\.0\.0\.[12]:)\d+(?:/\d{4})?|(?<=localhost:)\d+|(?<=_PORT=)\d+|(?<=-port )\d+")


def block(page: Path, title: str) -> str:
    """The one shell block of a section of the page."""
    [script] = re.findall(r"```sh\n(.*?)```", page.read_text().split(f"## {title}\n")[1].split("\n## ")[0], re.DOTALL)
    return str(script)


class Ports:
    """Replaces every port of a guide by a free one, the same everywhere."""

    def __init__(self, **known: int) -> None:
        self._known = {name.removeprefix("p"): str(port) for name, port in known.items()}

    def replace(self, text: str) -> str:
        return PORT.sub(lambda match: "/".join(map(self._free, match[0].split("/"))), text)

    def replace_in(self, *files: Path) -> None:
        for file in files:
            file.write_text(self.replace(file.read_text()))

    def _free(self, port: str) -> str:
        return self._known.setdefault(port, str(free_port()))


@contextmanager
def shell(script: str, folder: Path, **environ: str) -> Iterator[Path]:
    """Runs a script in the background, which writes to this log; all processes it started end with this context."""
    log_path = folder / "shell.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"set -eu\n{script}\nwait"], cwd=folder, env=environ, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield log_path
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=20)
            finally:
                os.killpg(process.pid, signal.SIGKILL)
