"""Which log an address means, and what a person reads who asked for one that cannot be had."""

import os
import subprocess
import sys

import pytest
import redis.asyncio

from onsale.local.ports import free_port
from shared.messaging.log import LogRefused
from shared.messaging.open_log import open_log
from shared.messaging.redis_streams import RedisStreams
from shared.runtime.settings import ServiceSettings


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nats://", "nats://host:port"),
        ("nats://a,b/topic", "without a path or a query"),
        ("kafka://a?acks=0", "without a path or a query"),
        ("kafka://user:secret@a", "user and password are not supported"),
        ("amqp://a", "redis://…, nats://host,host or kafka://host,host, not amqp://"),
        ("somewhere", "redis://…, nats://host,host or kafka://host,host"),
    ],
)
async def test_an_address_that_means_no_log_is_refused_in_one_line(url: str, says: str) -> None:
    with pytest.raises(LogRefused) as refused:
        async with open_log(ServiceSettings(event_log_url=url), redis.asyncio.Redis()):
            pass
    assert "ONSALE_EVENT_LOG_URL" in str(refused.value)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


async def test_without_an_address_the_log_is_in_the_redis_there_is(redis) -> None:
    async with open_log(ServiceSettings(), redis) as log:
        assert isinstance(log, RedisStreams)
    await redis.ping()


@pytest.mark.parametrize("scheme", ["nats", "kafka"])
async def test_a_log_that_is_away_is_not_asked_when_it_is_opened(scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:{free_port()}"
    async with open_log(ServiceSettings(event_log_url=url), redis.asyncio.Redis()):
        pass


async def test_a_library_that_is_missing_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    with pytest.raises(LogRefused, match=r"pip install 'onsale\[kafka\]'"):
        async with open_log(ServiceSettings(event_log_url="kafka://a"), redis.asyncio.Redis()):
            pass


def test_a_person_who_starts_a_service_reads_one_line() -> None:
    code = "import sys; sys.modules['nats'] = None; sys.argv[1:] = ['serve', 'queue']; import onsale.__main__"
    environ = os.environ | {"ONSALE_EVENT_LOG_URL": "nats://a", "QUEUE_PORT": str(free_port())}
    command = [sys.executable, "-P", "-c", code]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.endswith("is nats://…, which needs: pip install 'onsale[nats]'\n")
    assert "Traceback" not in ran.stderr
