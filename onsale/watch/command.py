"""`onsale watch`: the figures of a running sale, live in a terminal."""

from contextlib import aclosing, suppress
from typing import Annotated

import typer
from rich.live import Live

from onsale.cli.context import EventId, for_suite, out, run_async, target
from onsale.watch.screen import draw
from onsale.watch.stream import watched


@for_suite
def watch(
    event_id: EventId,
    once: Annotated[bool, typer.Option("--once", help="Print the figures of this moment and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each state as one line of JSON.")] = False,
) -> None:
    """Watch a sale live: the same figures as in the console, once a second. Ctrl-C ends it.

    Example: onsale watch arena-2026
    """
    with suppress(KeyboardInterrupt):
        run_async(_watch(event_id, once=once, as_json=as_json))


async def _watch(event_id: str, *, once: bool, as_json: bool) -> None:
    async with aclosing(watched(target().url, target().admin_key, event_id)) as states:
        if once or as_json:
            async for state in states:
                out.print(state.snapshot.model_dump_json() if as_json else draw(state), soft_wrap=as_json, markup=False)
                if once:
                    return
        else:
            with Live(console=out, auto_refresh=False, screen=out.is_terminal) as live:
                async for state in states:
                    live.update(draw(state), refresh=True)
