"""How many files of the product a join crosses, from the fan's request to the place in the line.

Gateway and queue are in one process, as in an installation of one. The fan is new and many wait ahead, as in a crowd.
Whoever looks for the cause of a join that failed opens these files. A failure prints them all.

Not counted is what a room may want of a fan before the line, and whether the line is for this fan at all: features,
each with a file of its own that says whether this join needs it.
"""

import pytest

from services.gateway import app as gateway_app
from services.queue.app import create_app
from services.queue.settings import Settings
from services.queue.tuning import DEFAULTS
from shared.rpc import answered_here
from tests.gateway.conftest import AllSettings, gateway_client
from tests.queue.conftest import EVENT, Queue
from tests.support.neighbours import Connections
from tests.support.running.serving import borrowed_app
from tests.support.walk import crossed, listed

JOIN_MAX = 32


async def test_a_join_crosses_few_files(queue: Queue, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await queue.open(fans=100, rate_per_s=0.05, burst=1, stock_coupling=False)
    monkeypatch.setattr(gateway_app, "client", Connections({}))  # what is called here opens no connection
    with borrowed_app(create_app, Settings(log_requests=False), DEFAULTS) as app:
        app.state.deps = queue.state
        with answered_here("queue", app.state.own_process):
            async with gateway_client(AllSettings(redis_url=redis_url)) as fan:

                async def join(_: int) -> None:
                    fan.cookies.clear()  # of the fan before
                    answer = await fan.post(f"/events/{EVENT}/queue")
                    assert answer.status_code == 201, answer.text

                files = {file for file in await crossed(join) if not file.startswith("features/")}
    assert len(files) <= JOIN_MAX, listed(files)
