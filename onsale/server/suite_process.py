"""A process of a local suite: all services behind the one port, which it may share with others.

`python -P -m onsale.server.suite_process` runs one of several under `onsale up`, which has started what they share;
settings come from the environment. It stops on SIGTERM.
"""

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
from fastapi import FastAPI

from onsale.cli.context import run_async
from onsale.data_dir import STARTED_FILE, TARGETS_FILE
from onsale.errors import OperatorError
from onsale.server import serve
from onsale.server.one_port import Listener, OnePort
from onsale.server.serve import merged
from shared.features import problem_page, services
from shared.routes import Service
from shared.runtime import tracing
from shared.runtime.descriptors import raise_descriptor_limit
from shared.runtime.logging import write_json_lines
from shared.web.app import public

LOOPBACK = "127.0.0.1"
METRICS_WITHIN_S = 5.0


@dataclass(frozen=True)
class Port:
    """Where the suite answers. `own_port`: another one on this machine, where this process alone answers; 0: none."""

    data_dir: Path
    host: str
    port: int
    own_port: int = 0


def listeners(port: Port, apps: dict[Service, FastAPI]) -> list[Listener]:
    """Of the services' public APIs."""
    settings = next(iter(apps.values())).state.settings
    started = port.data_dir / STARTED_FILE
    app = OnePort(
        {name: public(app) for name, app in apps.items()}, settings.admin_keys, metrics=metrics_of(port.data_dir),
        started=lambda: [] if started.exists() else ["event files"], problem_page=problem_page(settings.features_off),
    )  # fmt: skip
    outside = [Listener(app, port.host, port.port, bool(port.own_port), settings.shutdown_grace_s)]
    if port.own_port:
        outside.append(Listener(app, LOOPBACK, port.own_port, grace_s=settings.shutdown_grace_s))
    return outside


def metrics_of(data_dir: Path) -> Callable[[], Awaitable[bytes]]:
    """The metrics of all processes of this suite. One that does not answer is left out."""

    async def read() -> bytes:
        targets = json.loads((data_dir / TARGETS_FILE).read_text())
        addresses = {each["labels"]["process"]: each["targets"][0] for each in targets}
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=METRICS_WITHIN_S) as client:  # noqa: S501 - plain HTTP on this machine
            answers = await asyncio.gather(
                *(client.get(f"http://{address}/metrics") for address in addresses.values()), return_exceptions=True
            )
        texts = {
            name: answer.text for name, answer in zip(addresses, answers, strict=True)
            if isinstance(answer, httpx.Response)
        }  # fmt: skip
        return (merged(texts) if len(addresses) > 1 else "".join(texts.values())).encode()

    return read


def running(port: Port) -> AbstractAsyncContextManager[None]:
    """All services, served inside this context, with the settings that the environment has now."""
    apps = serve.create(services())
    tracing.start_from_environment(processes=apps["queue"].state.settings.processes)
    return serve.running(apps, listeners(port, apps), serve.internal_listeners(apps))


def main() -> int:
    """Runs until it is told to stop; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--own-port", type=int, required=True)
    parser.add_argument("--verbose", action="store_true")
    arguments = vars(parser.parse_args())
    write_json_lines(logging.INFO if arguments.pop("verbose") else logging.WARNING)
    raise_descriptor_limit()
    try:
        run_async(serve.until_stopped(partial(running, Port(**arguments))))
    except OperatorError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
