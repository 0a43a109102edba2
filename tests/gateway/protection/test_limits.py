"""Rate limits of one gateway process, by fan and by address; many fans behind one address may still join."""

import pytest

from services.gateway.protection.identity import TokenReader
from services.gateway.settings import Settings
from shared.security.limits import LOOPBACK, UNREADABLE, Buckets, Networks, client_address
from shared.security.tokens import QueueToken, QueueTokens
from tests.gateway.tokens import queue_token

OUR_PROXIES = Networks("127.0.0.0/8,10.0.0.0/8")
PATH = "/events/show/queue"
STATUS = f"{PATH}/status"


def test_a_bucket_allows_its_burst_and_then_its_rate():
    buckets = Buckets(per_s=2, burst=5, keys_max=10)
    assert [buckets.take("a", now_s=100.0) for _ in range(5)] == [0.0] * 5
    assert buckets.take("a", now_s=100.0) == pytest.approx(0.5, abs=0.01)
    assert buckets.take("b", now_s=100.0) == 0
    assert buckets.take("a", now_s=100.5) == 0
    assert buckets.take("a", now_s=100.5) > 0
    assert sum(buckets.take("a", now_s=200 + n / 100) == 0 for n in range(1_000)) == 5 + 2 * 10 - 1


def test_the_number_of_buckets_is_bounded_and_a_busy_one_is_kept():
    buckets = Buckets(per_s=1, burst=3, keys_max=100)
    waits_s = []
    for number in range(10_000):
        buckets.take(number, now_s=0.0)
        waits_s.append(buckets.take("busy", now_s=0.0))
    assert len(buckets) == 100
    assert min(waits_s[3:]) > 0


def test_a_bucket_that_is_full_again_is_forgotten():
    """Ten fans a second for an hour; a bucket of two is full again after ten seconds."""
    buckets = Buckets(per_s=0.2, burst=2, keys_max=100_000)
    for number in range(36_000):
        buckets.take(number, now_s=number / 10)
        buckets.charge(number, now_s=number / 10)
    assert 100 <= len(buckets) <= 110
    assert buckets.wait_s(35_999, now_s=3600) > 0


def test_the_number_of_cached_tokens_is_bounded_and_the_oldest_is_verified_again(monkeypatch):
    verified: list[str] = []
    read = QueueTokens.read

    def recorded(self: QueueTokens, text: str) -> QueueToken:
        verified.append(text)
        return read(self, text)

    monkeypatch.setattr(QueueTokens, "read", recorded)
    reader = TokenReader(Settings(cache_entries_max=2), users=None)  # type: ignore[arg-type]
    first, second, third = (queue_token(join_seq=n) for n in (1, 2, 3))
    for text in (first, second, second, third, third, first):
        reader.read(text, "show")
    assert verified == [first, second, third, first]


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("203.0.113.9", [], "203.0.113.9"),
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
        ("127.0.0.1", [], None),
        ("10.0.0.7", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.7", ["1.1.1.1, 198.51.100.1, 10.2.2.2"], "198.51.100.1"),
        ("10.0.0.7", ["1.1.1.1", "198.51.100.1"], "198.51.100.1"),
        ("10.0.0.7", ["1.1.1.1, nonsense"], UNREADABLE),
        ("10.0.0.7", ["2001:db8:1:2:aaaa::1"], "2001:db8:1:2::/64"),
        ("10.0.0.7", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("unix", ["198.51.100.1"], UNREADABLE),
        ("10.0.0.7", ["203.0.113.9:51234"], "203.0.113.9"),
        ("10.0.0.7", ["1.1.1.1:1, 203.0.113.9:51234, 10.2.2.2:443"], "203.0.113.9"),
        ("10.0.0.7", ["[2001:db8::1]:443"], "2001:db8::/64"),
        ("10.0.0.7", ['"[2001:db8::1]"'], "2001:db8::/64"),
        ("10.0.0.7", ['"[2001:db8::2]:51234"'], "2001:db8::/64"),
        ("10.0.0.7", ["[::ffff:203.0.113.9]:51234"], "203.0.113.9"),
        ("10.0.0.7", ["2001:db8::1%eth0"], "2001:db8::/64"),
        ("10.0.0.7", ["[fe80::1%25eth0]:80"], "fe80::/64"),
        ("10.0.0.7", ["1.1.1.1, unknown"], UNREADABLE),
        ("10.0.0.7", ["1.1.1.1, _x"], UNREADABLE),
        ("10.0.0.7", ["1.1.1.1, "], UNREADABLE),
        ("10.0.0.7", [" "], UNREADABLE),
        ("10.0.0.7", ["203.0.113.9:51234:1"], UNREADABLE),
        ("10.0.0.7", ["[2001:db8::1]443"], UNREADABLE),
        ("10.0.0.7", ["203.0.113.999"], UNREADABLE),
        ("10.0.0.7", [], UNREADABLE),
        ("10.0.0.7", ["10.3.3.3"], None),
        ("::ffff:127.0.0.1", [], None),
        ("127.0.0.1", [""], UNREADABLE),
    ],
)
def test_a_forwarded_address_is_trusted_only_from_our_own_proxies(peer, forwarded, address):
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    assert client_address({"type": "http", "client": (peer, 1), "headers": headers}, OUR_PROXIES) == address
    assert client_address({"type": "http", "client": None, "headers": headers}, OUR_PROXIES) == UNREADABLE
    if peer.startswith("10."):
        assert client_address({"type": "http", "client": (peer, 1), "headers": headers}, LOOPBACK) == peer, (
            "not a trusted proxy"
        )


def test_malformed_trusted_proxies_are_refused_at_startup():
    with pytest.raises(ValueError, match="trusted_proxies"):
        Settings(trusted_proxies="10.0.0.0/33")
    assert isinstance(Settings(trusted_proxies="10.0.0.0/8").trusted_proxies, Networks)


@pytest.fixture
def settings(settings):
    """Strict rate limits."""
    return settings.model_copy(update={"fan_calls_per_s": 0.3, "address_joins_per_s": 0.4})


async def test_a_fan_who_polls_too_fast_is_refused_without_a_request_to_the_queue(fan, browser, queue, publish_frame):
    await queue.open()
    await fan.post(PATH)
    await publish_frame(await queue.call())
    calls_before = sum(queue.calls[name] for name in ("/status", "/claims", "/leaves", "/joins"))
    answers = [await fan.get(STATUS) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 3 + [429] * 3
    assert answers[-1].json()["type"] == "/problems/too-many-requests"
    assert answers[-1].headers["retry-after"] == "4"
    for method, path in (("POST", f"{PATH}/pass"), ("DELETE", PATH), ("POST", PATH)):
        assert (await fan.request(method, path)).status_code == 429
    assert sum(queue.calls[name] for name in ("/status", "/claims", "/leaves", "/joins")) <= calls_before + 1
    other = browser()
    await other.post(PATH)
    assert (await other.get(STATUS)).status_code == 200, "each fan has their own limit"


async def test_of_several_queue_cookies_the_first_valid_one_counts(browser, queue):
    await queue.open()
    token = (await browser().post(PATH)).json()["queue_token"]
    name, other = "onsale_queue_show", (await browser().post(PATH)).json()["queue_token"]
    orders = [
        f"{name}=a.b.decoy; {name}={token}",
        f"{name}={token}; {name}=a.b.decoy",
        f"{name}={token}; {name}={other}",
    ]
    statuses = [(await browser().get(STATUS, headers={"cookie": orders[n % 3]})).status_code for n in range(9)]
    assert statuses == [200] * 3 + [429] * 6
    assert (await browser().get(STATUS, headers={"cookie": f"{name}=a.b.decoy"})).status_code == 401


async def test_the_joins_from_one_address_are_limited(browser, queue):
    await queue.open()
    one_address = {"x-forwarded-for": "198.51.100.1"}
    answers = [(await browser().post(PATH, headers=one_address)).status_code for _ in range(6)]
    assert answers == [201] * 4 + [429] * 2
    assert (await browser().get(f"{PATH}/challenge", headers=one_address)).status_code == 429
    assert (await browser().post(PATH, headers={"x-forwarded-for": "198.51.100.2"})).status_code == 201
    assert (await browser().get(PATH, headers=one_address)).status_code == 200, "the public line has no limit"


async def test_clients_whom_a_proxy_names_unreadably_share_one_limit(browser, queue, settings):
    await queue.open()
    before = settings.trusted_proxies.nameless["unreadable"]
    names = [f"_hidden{n}" for n in range(6)]
    answers = [(await browser().post(PATH, headers={"x-forwarded-for": name})).status_code for name in names]
    assert answers == [201] * 4 + [429] * 2
    ports = [f"198.51.100.1:{port}" for port in range(50_000, 50_006)]
    answers = [(await browser().post(PATH, headers={"x-forwarded-for": port})).status_code for port in ports]
    assert answers == [201] * 4 + [429] * 2, "one client, whatever its port"
    assert settings.trusted_proxies.nameless["unreadable"] > before
