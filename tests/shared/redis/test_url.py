"""One URL says what kind of Redis there is; what cannot be meant is refused in words without the password."""

import pytest
from pydantic import ValidationError

from shared.redis.url import RedisUrl
from shared.runtime.settings import ServiceSettings


@pytest.mark.parametrize(
    ("url", "kind", "first", "last"),
    [
        ("redis://engine", "standalone", "redis://engine:6379?", "redis://engine:6379?"),
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
def test_every_kind_is_told_by_its_scheme(url: str, kind: str, first: str, last: str) -> None:
    where = RedisUrl.parse(url)
    assert where.kind == kind
    assert where.at(where.addresses[0]) == first
    assert where.at(where.addresses[-1]) == last


def test_sentinels_have_a_name_to_ask_for_and_a_password_of_their_own() -> None:
    where = RedisUrl.parse("redis+sentinel://:data@a,b/main?sentinel_username=s&sentinel_password=w@tch")
    assert (where.primary, where.sentinel_at(where.addresses[1])) == ("main", "redis://s:w%40tch@b:26379?")
    assert where.at(("c", 1)) == "redis://:data@c:1?"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://:secret@engine", "must begin with one of redis://"),
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
def test_what_cannot_be_meant_is_refused_at_start_without_the_password(url: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words) as refused:
        ServiceSettings(redis_url=url)
    assert "secret" not in str(refused.value)
