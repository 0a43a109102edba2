"""The process of one rehearsal: `onsale rehearse --supervised`, which says in lines of JSON how far it is.

It has the operator's authority in its environment, never among its arguments, and nothing else of this process'. It
stops and closes its copy when its input ends: when it is told to, and also when this process dies.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import orjson

COMMAND = (sys.executable, "-P", "-m", "onsale", "rehearse")
INHERITED = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
LINE_BYTES_MAX, ERROR_BYTES_KEPT = 256 * 1024, 2_000
STOP_WITHIN_S = 20.0


class Simulator:
    """The running process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors = b""
        self._reader = asyncio.create_task(self._keep_errors())

    @classmethod
    async def start(cls, arguments: Sequence[str], *, authority: str) -> "Simulator":
        """Raises `OSError`."""
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                *COMMAND, *arguments, "--supervised", env=environment | {"ONSALE_ADMIN_KEY": authority}, stdin=pipe,
                stdout=pipe, stderr=pipe, limit=LINE_BYTES_MAX, start_new_session=True,
            )
        )  # fmt: skip

    async def documents(self) -> AsyncIterator[dict[str, Any]]:
        """What it says, until its output ends. Raises `ValueError` for a line that is too long or no JSON object."""
        assert self._process.stdout
        while line := await self._process.stdout.readline():
            document = orjson.loads(line)
            if not isinstance(document, dict):
                raise ValueError("not an object")
            yield document

    async def stop(self) -> None:
        """It closes its copy and ends; one that does not is killed."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def error(self) -> str:
        """The end of what it wrote about why it failed; only after its output has ended."""
        await self._reader
        return self._errors.decode(errors="replace").strip().removeprefix("onsale: ")

    async def _keep_errors(self) -> None:
        assert self._process.stderr
        while part := await self._process.stderr.read(4096):
            self._errors = (self._errors + part)[-ERROR_BYTES_KEPT:]
