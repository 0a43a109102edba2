"""Opens the event log named in the settings. The client library of a log is imported only if it is used."""

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit

from shared.messaging.log import EventLog, LogRefused
from shared.messaging.redis_streams import RedisStreams
from shared.process.settings import ServiceSettings
from shared.redis import client as redis_client

LIBRARIES = {"nats": "nats", "kafka": "aiokafka"}
SETTING = "ONSALE_EVENT_LOG_URL"


@asynccontextmanager
async def open_log(settings: ServiceSettings, client: redis_client.Redis) -> AsyncIterator[EventLog]:
    """The event log; by default it is in the service's own Redis. An unreachable log does not stop the start.

    Raises `LogRefused` if it is configured wrongly.
    """
    log = _log(settings, client)
    try:
        yield log
    finally:
        await log.close()


def _log(settings: ServiceSettings, client: redis_client.Redis) -> EventLog:
    url, length_max = settings.event_log_url, settings.event_log_length_max
    if not url:
        return RedisStreams(client, length_max=length_max)
    scheme = url.partition("://")[0]
    if scheme in LIBRARIES:
        _require(scheme)
    if scheme == "nats":
        from shared.messaging.jetstream import JetStream

        user, password, servers = _servers(url, 4222)
        return JetStream(servers, user=user, password=password, kept_s=settings.event_log_kept_h * 3600)
    if scheme == "kafka":
        from shared.messaging.kafka import Kafka

        user, _, servers = _servers(url, 9092)
        if user is not None:
            raise LogRefused(f"{SETTING}: user and password are not supported for Kafka; leave them out.")
        return Kafka(servers)
    try:
        return RedisStreams(redis_client.connect(url), length_max=length_max, owned=True)
    except ValueError as wrong:
        raise LogRefused(
            f"{SETTING} must be redis://…, nats://host,host or kafka://host,host, not {scheme}://…"
        ) from wrong


def _require(scheme: str) -> None:
    library = LIBRARIES[scheme]
    try:
        importlib.import_module(library)
    except ImportError as missing:
        raise LogRefused(f"{SETTING} is {scheme}://…, which needs: pip install 'onsale[{scheme}]'") from missing


def _servers(url: str, port: int) -> tuple[str | None, str | None, list[str]]:
    """User, password and `host:port` of each server of `scheme://user:password@host,host:port`."""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    servers = [host if ":" in host else f"{host}:{port}" for host in hosts.split(",") if host]
    if not servers or parts.path.strip("/") or parts.query:
        raise LogRefused(f"{SETTING} must be {parts.scheme}://host:port,host:port without a path or a query.")
    user, _, password = credentials.partition(":")
    return (unquote(user), unquote(password), servers) if credentials else (None, None, servers)
