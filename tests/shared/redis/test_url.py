"""The Redis URL selects the kind of Redis; an invalid one is refused without showing its password."""

import pytest
from pydantic import ValidationError

from shared.process.settings import ServiceSettings
from shared.redis.url import RedisUrl


@pytest.mark.parametrize(
    ("url", "kind", "first", "last"),
    [
        ("redis://host", "standalone", "redis://host:6379?", "redis://host:6379?"),
        ("rediss://:p%40ss@e:1/2", "standalone", "rediss://:p%40ss@e:1/2?", "rediss://:p%40ss@e:1/2?"),
        ("redis+cluster://u:p@a,b:7001,[::1]:7002", "cluster", "redis://u:p@a:6379?", "redis://u:p@[::1]:7002?"),
        (
            "rediss+cluster://a:1?ssl_ca_certs=/ca",
            "cluster",
            "rediss://a:1?ssl_ca_certs=%2Fca",
            "rediss://a:1?ssl_ca_certs=%2Fca",
        ),
        ("redis+sentinel://:p@a,b:2/main/3", "sentinel", "redis://:p@a:26379/3?", "redis://:p@b:2/3?"),
    ],
)
def test_the_scheme_of_a_url_selects_the_kind_of_redis(url: str, kind: str, first: str, last: str) -> None:
    parsed = RedisUrl.parse(url)
    assert parsed.kind == kind
    assert parsed.at(parsed.addresses[0]) == first
    assert parsed.at(parsed.addresses[-1]) == last


def test_a_sentinel_url_names_the_primary_and_has_a_password_of_its_own() -> None:
    parsed = RedisUrl.parse("redis+sentinel://:data@a,b/main?sentinel_username=s&sentinel_password=w@tch")
    assert (parsed.primary, parsed.sentinel_at(parsed.addresses[1])) == ("main", "redis://s:w%40tch@b:26379?")
    assert parsed.at(("c", 1)) == "redis://:data@c:1?"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://:secret@host", "must begin with one of redis://"),
        ("redis://:secret@a,b", "several hosts need"),
        ("redis://:secret@a:port", "every host"),
        ("redis+cluster://:secret@", "must name 1 to 100 hosts"),
        ("redis+cluster://:secret@a/1", "database 0 only"),
        ("redis+sentinel://:secret@a", "must end with the name of their primary"),
        ("redis+sentinel://:secret@a/main/x", "number of one database"),
        ("redis://:secret@a?ssl_ca_certs=/ca", "need a scheme that begins with rediss"),
        ("redis://:secret@a?decode_responses=yes", "unknown options: decode_responses"),
    ],
)
def test_an_invalid_redis_url_is_refused_at_start_without_showing_its_password(url: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message) as refused:
        ServiceSettings(redis_url=url)
    assert "secret" not in str(refused.value)
