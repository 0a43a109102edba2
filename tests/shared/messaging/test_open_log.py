"""Opening an event log: the URL selects the kind, and a URL that cannot work is refused in one line."""

import os
import subprocess
import sys

import pytest
import redis.asyncio

from onsale.local.ports import free_port
from shared.messaging.log import LogRefused
from shared.messaging.open_log import open_log
from shared.messaging.redis_streams import RedisStreams
from shared.process.settings import ServiceSettings


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
