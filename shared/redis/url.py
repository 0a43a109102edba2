"""The URL of Redis or Valkey: one server, the primary that sentinels name, or a cluster, distinguished by the scheme.

    redis://[user:password@]host[:port][/db]                            rediss:// with TLS; unix:///path
    redis+sentinel://[user:password@]host[:port],…/primary-name[/db]    rediss+sentinel:// with TLS
    redis+cluster://[user:password@]host[:port],…                       rediss+cluster:// with TLS

Error messages never repeat the URL: it may hold a password.
"""

from dataclasses import dataclass
from typing import Literal, Self
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

Kind = Literal["standalone", "sentinel", "cluster"]
Address = tuple[str, int]

KINDS: dict[str, tuple[Kind, str]] = {
    "redis": ("standalone", "redis"), "rediss": ("standalone", "rediss"), "unix": ("standalone", "unix"),
    "redis+sentinel": ("sentinel", "redis"), "rediss+sentinel": ("sentinel", "rediss"),
    "redis+cluster": ("cluster", "redis"), "rediss+cluster": ("cluster", "rediss"),
}  # fmt: skip
PORTS: dict[Kind, int] = {"standalone": 6379, "sentinel": 26379, "cluster": 6379}
ADDRESSES_MAX = 100
TLS_OPTIONS = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
SENTINEL_OPTIONS = {"sentinel_username", "sentinel_password"}


class RedisUnfit(Exception):
    """Redis or Valkey could lose data, or is not of the kind that its URL names."""


@dataclass(frozen=True, slots=True, repr=False)
class RedisUrl:
    """`login` and `options` are for every server process; sentinels have a login of their own."""

    kind: Kind
    scheme: str
    addresses: tuple[Address, ...]
    login: str
    path: str
    options: str
    primary: str = ""
    sentinel_login: str = ""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Raises `ValueError` with the fault."""
        parts = urlsplit(url)
        if parts.scheme not in KINDS:
            raise ValueError(f"the URL of Redis must begin with one of {', '.join(f'{s}://' for s in KINDS)}")
        kind, scheme = KINDS[parts.scheme]
        options = _options(parts, kind, scheme)
        sentinel = _login(options.pop("sentinel_username", ""), options.pop("sentinel_password", ""))
        login, _, hosts = parts.netloc.rpartition("@")
        primary, path = _database_path(parts.path, kind, scheme)
        addresses = () if scheme == "unix" else _addresses(hosts, kind)
        return cls(
            kind=kind, scheme=scheme, addresses=addresses, login=f"{login}@" if login else "", path=path,
            options=urlencode(options), primary=primary, sentinel_login=sentinel,
        )  # fmt: skip

    def at(self, address: Address) -> str:
        """The URL of one server process."""
        return self._url(self.login, address, self.path)

    def sentinel_at(self, address: Address) -> str:
        """The URL of one sentinel."""
        return self._url(self.sentinel_login, address, "")

    def _url(self, login: str, address: Address, path: str) -> str:
        return f"{self.scheme}://{login}{host_port(address)}{path}?{self.options}"


def host_port(address: Address) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _options(parts: SplitResult, kind: Kind, scheme: str) -> dict[str, str]:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = (TLS_OPTIONS if scheme == "rediss" else set()) | (SENTINEL_OPTIONS if kind == "sentinel" else set())
    known |= {"db"} if kind == "standalone" else set()
    if unknown := options.keys() - known:
        tls = " (those of TLS need a scheme that begins with rediss)" if unknown & TLS_OPTIONS else ""
        raise ValueError(f"the URL of Redis has unknown options: {', '.join(sorted(unknown))}{tls}")
    return options


def _login(user: str, password: str) -> str:
    return f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""


def _database_path(path: str, kind: Kind, scheme: str) -> tuple[str, str]:
    """The name of the primary, for sentinels only, and the path of every process: its database."""
    if scheme == "unix":
        return "", path
    names = [part for part in path.split("/") if part]
    if kind == "sentinel" and not names:
        raise ValueError("the URL of sentinels must end with the name of their primary: redis+sentinel://…/name")
    primary = names.pop(0) if kind == "sentinel" else ""
    if len(names) > 1 or any(not name.isdigit() for name in names):
        raise ValueError("the URL of Redis may end with the number of one database, and with nothing else")
    if kind == "cluster" and names and int(names[0]):
        raise ValueError("a Redis cluster has database 0 only")
    return primary, f"/{int(names[0])}" if names else ""


def _addresses(hosts: str, kind: Kind) -> tuple[Address, ...]:
    addresses = tuple(_address(host, kind) for host in hosts.split(",")) if hosts else ()
    if not addresses or len(addresses) > ADDRESSES_MAX:
        raise ValueError(f"the URL of Redis must name 1 to {ADDRESSES_MAX} hosts")
    if kind == "standalone" and len(addresses) > 1:
        raise ValueError("several hosts need redis+cluster:// or redis+sentinel://")
    return addresses


def _address(host: str, kind: Kind) -> Address:
    try:
        parts = urlsplit(f"//{host.strip()}")
        name, port = parts.hostname, parts.port
    except ValueError:
        name, port = None, None
    if not name:
        raise ValueError("every host in the URL of Redis is a name or an IP address with an optional port")
    return name, port or PORTS[kind]
