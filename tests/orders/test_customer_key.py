"""Which e-mails are one customer."""

import pytest

from services.orders.references import customer_key
from shared.settings import development_keys


def key(email: str) -> str:
    return customer_key(development_keys("customer"), email)


@pytest.mark.parametrize(
    "email",
    [
        "Ada.L@Example.org", "ADA.L@EXAMPLE.ORG", " ada.l@example.org ", "ada.l@example.org.",
        "\uff41da.l@example.org",
    ],
)  # fmt: skip
def test_the_same_email_typed_in_another_way_is_the_same_customer(email: str) -> None:
    assert key(email) == key("ada.l@example.org")


def test_a_letter_and_its_accent_are_one_letter() -> None:
    assert key("zoe\u0308@example.org") == key("zo\u00eb@example.org") == key("ZO\u00cb@example.org")


@pytest.mark.parametrize("email", ["adal@example.org", "ada.l+2@example.org", "ada.l@example.com", "zoe@example.org"])
def test_what_may_be_another_mailbox_is_another_customer(email: str) -> None:
    assert key(email) != key("ada.l@example.org")
