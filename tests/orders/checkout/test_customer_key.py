"""The customer key: which e-mail addresses count as one customer, and which are refused."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.orders.checkout.requests import CustomerDetails
from services.orders.model.order import customer_key
from shared.rules.addresses import normalize_email
from shared.security.tokens import development_keys


def key(email: str) -> str:
    return customer_key(development_keys("customer"), email)


@pytest.mark.parametrize(
    "email",
    [
        "Ada.L@Example.org", "ADA.L@EXAMPLE.ORG", " ada.l@example.org ", "ada.l@example.org.",
        "\uff41da.l@example.org",
    ],
)  # fmt: skip
def test_different_spellings_of_an_address_are_one_customer(email: str) -> None:
    assert key(email) == key("ada.l@example.org")


def test_composed_and_decomposed_letters_are_equal() -> None:
    assert key("zoe\u0308@example.org") == key("zo\u00eb@example.org") == key("ZO\u00cb@example.org")


@pytest.mark.parametrize("email", ["adal@example.org", "ada.l+2@example.org", "ada.l@example.com", "zoe@example.org"])
def test_addresses_of_other_mailboxes_are_other_customers(email: str) -> None:
    assert key(email) != key("ada.l@example.org")


DOMAINS = [
    ("example.org", "example.org"),
    ("b\u00fccher.example", "xn--bcher-kva.example"),
    ("\u043f\u043e\u0447\u0442\u0430.example", "xn--80a1acny.example"),
    ("fa\u00df.example", "xn--fa-hia.example"),
]
NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789_+-", min_size=1, max_size=12) | st.sampled_from(
    ["zo\u00eb", "\u0438\u0432\u0430\u043d", "\u5c71\u7530\u305f\u308d\u3046", "\u03bb\u03b4"]
)
HIDDEN = "\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f\u061c\u115f\u180b\u180e\u202e\u2066\ufe0f\U000e0041"


def spellings(name: str, domain: tuple[str, str]) -> list[str]:
    """Spellings of the same address."""
    wide = "".join(chr(ord(char) + 0xFEE0) if char.isascii() and char.isalnum() else char for char in name)
    names = {name, name.upper(), name.title(), unicodedata.normalize("NFD", name), wide} if name.islower() else {name}
    domains = {*domain, domain[0].title(), domain[1].upper(), f"{domain[1]}.", domain[0].replace(".", "\u3002")}
    return [f"{name}@{host}" for name in sorted(names) for host in sorted(domains)]


@given(NAMES, st.sampled_from(DOMAINS))
def test_one_mailbox_is_one_customer_in_every_spelling(name: str, domain: tuple[str, str]) -> None:
    assert {key(spelling) for spelling in spellings(name, domain)} == {key(f"{name}@{domain[1]}")}


@given(NAMES, st.sampled_from(DOMAINS), st.sampled_from(HIDDEN), st.data())
def test_an_address_with_an_invisible_character_is_refused(
    name: str, domain: tuple[str, str], hidden: str, data
) -> None:
    typed = f"{name}@{data.draw(st.sampled_from(domain))}"
    at = data.draw(st.integers(0, len(typed)))
    with pytest.raises(ValueError, match="invisible character"):
        CustomerDetails(name="A fan", email=typed[:at] + hidden + typed[at:])


@pytest.mark.parametrize(
    "email",
    [
        '"ada"@example.org', '"a da"@example.org', '"ada".l@example.org', "ada(a comment)@example.org",
        "(x)ada@example.org", "ada@(x)example.org", "ada@example.org(x)", "ada\\.l@example.org", "ada..l@example.org",
        ".ada@example.org", "ada.@example.org", "\u0430da@example.org", "ad\u0430@example.org", "\u03bfda@example.org",
        "\u0430\u0441\u0435@example.org", "ada@[127.0.0.1]", "ada@exam_ple.org", "ada@-example.org", "ada@example..org",
        "ada@xn--zz--.org",
    ],
)  # fmt: skip
def test_a_disguised_address_is_refused_with_a_reason(email: str) -> None:
    with pytest.raises(ValueError, match=r"address|pattern"):
        CustomerDetails(name="A fan", email=email)


@pytest.mark.parametrize("email", ["ada.l+tickets@example.org", "o'brien@example.ie", "a!#$%&*/=?^_`{|}~-@example.org",
                                   "\u0438\u0432\u0430\u043d@example.org", "1@b.example"])  # fmt: skip
def test_a_plain_address_is_stored_as_typed(email: str) -> None:
    assert CustomerDetails(name="A fan", email=email).email == email
    assert normalize_email(email) == email
