"""One question of an operator to a running suite, as commands ask it: where it answers, with which key."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
import uvloop
from rich.console import Console

from onsale.commands.client import Admin
from onsale.local import key_file
from onsale.local.engines import suite_url

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
DataDir = Annotated[Path, typer.Option("--data-dir", help="Engines' data, keys and logs.")]
Url = Annotated[str | None, typer.Option("--url", help="Where the suite answers; as its data directory says.")]
EventId = Annotated[str, typer.Argument(metavar="EVENT_ID", help="The event, as in its file.")]
DATA_DIR = Path(".onsale")


def ask(url: str | None, data_dir: Path, question: Callable[[Admin], Awaitable[Any]]) -> Any:
    """The answer. Raises `ProviderRejected`."""

    async def work() -> Any:
        async with httpx.AsyncClient(trust_env=False) as client:
            return await question(Admin(client, url or suite_url(data_dir), key_file.admin_key(data_dir)))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())
