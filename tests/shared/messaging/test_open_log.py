"""Opening an event log: the URL selects the kind, and a URL that cannot work is refused in one line."""

import asyncio
import os
import subprocess
import sys

import pytest
import redis.asyncio

from onsale.local.ports import free_port
from shared.messaging.log import START, LogRefused
from shared.messaging.open_log import open_log
from shared.messaging.redis_streams import RedisStreams, log_stream
from shared.process.settings import ServiceSettings
from shared.redis.client import ANSWERED_WITHIN_S, connect


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nats://", "nats://host:port"),
        ("nats://a,b/topic", "without a path or a query"),
        ("kafka://a?acks=0", "without a path or a query"),
        ("kafka://user:secret@a", "user and password are not supported"),
        ("amqp://a", "redis://…, nats://host,host or kafka://host,host, not amqp://"),
        ("somewhere", "redis://…, nats://host,host or kafka://host,host"),
    ],
)
async def test_an_invalid_event_log_url_is_refused_in_one_line(url: str, message: str) -> None:
    with pytest.raises(LogRefused) as refused:
        async with open_log(ServiceSettings(event_log_url=url), redis.asyncio.Redis()):
            pass
    assert "ONSALE_EVENT_LOG_URL" in str(refused.value)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


async def test_without_a_url_the_log_is_in_the_services_own_redis(redis) -> None:
    async with open_log(ServiceSettings(), redis) as log:
        assert isinstance(log, RedisStreams)
    await redis.ping()


@pytest.mark.parametrize("scheme", ["nats", "kafka"])
async def test_opening_a_log_does_not_connect_to_its_server(scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:{free_port()}"
    async with open_log(ServiceSettings(event_log_url=url), redis.asyncio.Redis()):
        pass


async def test_a_missing_client_library_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    with pytest.raises(LogRefused, match=r"pip install 'onsale\[kafka\]'"):
        async with open_log(ServiceSettings(event_log_url="kafka://a"), redis.asyncio.Redis()):
            pass


def test_a_service_without_the_client_library_ends_with_one_line() -> None:
    code = "import sys; sys.modules['nats'] = None; sys.argv[1:] = ['serve', 'queue']; import onsale.__main__"
    environ = os.environ | {"ONSALE_EVENT_LOG_URL": "nats://a", "QUEUE_PORT": str(free_port())}
    command = [sys.executable, "-P", "-c", code]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.endswith("is nats://…, which needs: pip install 'onsale[nats]'\n")
    assert "Traceback" not in ran.stderr


async def test_a_reader_may_wait_for_longer_than_a_client_waits_for_an_answer(redis_url: str) -> None:
    loop, client = asyncio.get_running_loop(), connect(redis_url)
    async with open_log(ServiceSettings(), client) as log:
        begun_s = loop.time()
        assert await log.read({log_stream("quiet"): START}, count=1, wait_s=ANSWERED_WITHIN_S + 0.2) == []
        assert loop.time() - begun_s >= ANSWERED_WITHIN_S
    await client.aclose()
