"""A pass that was released, or that a reset of the waiting room ended, opens no stream, and its streams end."""

import pytest

from shared.contracts.frames import Revoked, revoked_channel
from shared.runtime.clock import now_ms
from tests.notifier.client import SseClient
from tests.notifier.conftest import Notifier
from tests.notifier.fake_services import FakeServices
from tests.notifier.frames import EVENT, line_frame
from tests.notifier.tokens import queue_token, signed_pass
from tests.support.wait import wait_until

STREAMS = pytest.mark.parametrize("query", ["", "?seats=*", "?sections=A", "?seats=A"])


def revoked() -> list[tuple[str, int]]:
    return [("jti", now_ms() + 600_000)]


async def open_stream(notifier: Notifier, query: str) -> SseClient:
    client = await notifier.listen(query, token=signed_pass())
    await wait_until(lambda: client.last("seats" if "seats" in query else "sections"))
    return client


async def is_refused(client: SseClient, status: int, slug: str) -> None:
    await wait_until(lambda: client.complete)
    assert (client.status, client.problem) == (status, slug)


@STREAMS
async def test_a_released_pass_opens_no_stream(notifier: Notifier, services: FakeServices, query: str):
    services.revoked = revoked()
    await is_refused(await notifier.listen(query, token=signed_pass()), 401, "bad-credential")


@STREAMS
async def test_a_pass_of_before_a_reset_opens_no_stream(notifier: Notifier, services: FakeServices, query: str):
    services.line = line_frame(11, 0, epoch=2)
    await is_refused(await notifier.listen(query, token=signed_pass(epoch=1)), 401, "bad-credential")
    await notifier.listen(query, token=signed_pass(epoch=2))
    assert notifier.clients[-1].status == 200


async def test_a_place_of_before_a_reset_opens_no_stream(notifier: Notifier, services: FakeServices):
    services.line = line_frame(11, 0, epoch=2)
    await is_refused(await notifier.listen(token=queue_token(1, epoch=1)), 410, "stale-epoch")


@STREAMS
async def test_releasing_a_pass_ends_its_streams_and_no_others(notifier: Notifier, query: str):
    client, other = await open_stream(notifier, query), await notifier.connect()
    message = Revoked(event_id=EVENT, passes=revoked())
    await notifier.redis.publish(revoked_channel(EVENT), message.model_dump_json())
    await wait_until(lambda: client.closed)
    await is_refused(await notifier.listen(query, token=signed_pass()), 401, "bad-credential")
    assert not other.closed


@STREAMS
async def test_a_reset_ends_the_streams_of_the_passes_before_it(notifier: Notifier, query: str):
    client = await open_stream(notifier, query)
    await notifier.publish(line_frame(11, 0, epoch=2))
    await wait_until(lambda: client.closed)
