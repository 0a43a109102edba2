"""The servers that the URL of an event log names."""

from urllib.parse import unquote, urlsplit

from shared.messaging.log import SETTING, LogRefused


def servers_of(url: str, port: int) -> tuple[str | None, str | None, list[str]]:
    """User, password and `host:port` of each server of `scheme://user:password@host,host:port`."""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    servers = [host if ":" in host else f"{host}:{port}" for host in hosts.split(",") if host]
    if not servers or parts.path.strip("/") or parts.query:
        raise LogRefused(f"{SETTING} must be {parts.scheme}://host:port,host:port without a path or a query.")
    user, _, password = credentials.partition(":")
    return (unquote(user), unquote(password), servers) if credentials else (None, None, servers)
