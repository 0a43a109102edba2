"""`python -m onsale.sandbox --port N --webhook-url URL --secret S --books FILE`: the provider on 127.0.0.1.

Ends within a second of SIGTERM even with answers outstanding. Bad settings, a damaged file or a port in use: one line,
exit code 2.
"""

import argparse
import asyncio
import socket
import sys
from collections.abc import Sequence

import uvicorn
from pydantic import ValidationError

from onsale.sandbox.charge import StoreDamaged
from onsale.sandbox.endpoints import create_sandbox
from onsale.sandbox.settings import SandboxSettings
from shared.contracts.fields import refusal

HOST = "127.0.0.1"
POLL_S = 0.5


class Server(uvicorn.Server):
    """Stops without waiting for the answers it only delays."""

    def __init__(self, config: uvicorn.Config, *, closing: asyncio.Event) -> None:
        super().__init__(config)
        self._closing = closing

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing.set()
        await super().shutdown(sockets)

    async def main_loop(self) -> None:
        """Ends within half a second of a signal; uvicorn's own loop wakes ten times a second."""
        while not await self.on_tick(0):  # noqa: ASYNC110 - uvicorn offers nothing to wait for
            await asyncio.sleep(POLL_S)


def main(arguments: Sequence[str] | None = None) -> int:
    options = vars(_parser().parse_args(arguments))
    if not 0 <= (port := options.pop("port")) < 65_536:
        return _fail("port: a number up to 65535")
    try:
        app = create_sandbox(SandboxSettings(**options))
        listener = socket.create_server((HOST, port), backlog=2048)
    except ValidationError as problem:
        first = problem.errors()[0]
        return _fail(f"{'.'.join(map(str, first['loc']))}: {refusal(first)}")
    except (StoreDamaged, OSError) as problem:
        return _fail(str(problem))
    sys.stdout.write(f"sandbox payment provider on http://{HOST}:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(
        app, access_log=False, log_level="warning", timeout_graceful_shutdown=1, server_header=False
    )
    Server(config, closing=app.state.closing).run(sockets=[listener])
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m onsale.sandbox",
        description="A payment provider for tests and rehearsals.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--port", type=int, required=True, help="0 takes a free one and prints it")
    parser.add_argument("--webhook-url", help="where events go")
    parser.add_argument(
        "--secret", dest="webhook_secret", help="signs webhooks; better in ONSALE_SANDBOX_WEBHOOK_SECRET"
    )
    parser.add_argument("--books", dest="books_path", help="file of charges; without it they are kept in memory only")
    parser.add_argument("--public-url", help="where browsers reach the hosted page, if not where the suite calls")
    return parser


def _fail(message: str) -> int:
    sys.stderr.write(f"sandbox: {message}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
