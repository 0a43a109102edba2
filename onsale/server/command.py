"""`onsale serve`: single services in this process."""

from functools import partial
from typing import Annotated

import typer

from onsale.cli.context import run_async
from onsale.errors import OperatorError
from shared.features import services as installed
from shared.routes import Service
from shared.runtime.descriptors import raise_descriptor_limit
from shared.runtime.logging import write_json_lines


def serve(
    names: Annotated[list[str], typer.Argument(metavar="SERVICE…", help=", ".join(installed()))],
) -> None:
    """Run single services in this process, as a cluster does. All settings come from the environment.

    Example: onsale serve queue
    """
    write_json_lines()
    raise_descriptor_limit()
    services: list[Service] = [name for name in installed() if name in names]
    if unknown := set(names) - set(services):
        raise OperatorError(f"There is no service {', '.join(sorted(unknown))}; there are {', '.join(installed())}.")
    run_async(_serve(services))


async def _serve(names: list[Service]) -> None:
    from onsale.server import serve as server
    from shared.runtime import tracing

    apps = server.create(names)
    if off := set(names) - apps.keys():
        raise OperatorError(f"ONSALE_FEATURES_OFF leaves out {', '.join(sorted(off))}.")
    tracing.start_from_environment(processes=next(iter(apps.values())).state.settings.processes)
    listeners = server.public_listeners(apps), server.internal_listeners(apps)
    await server.until_stopped(partial(server.running, apps, *listeners))
