"""Stripe keeps what every provider promises."""

from tests.orders.payments.test_providers import *  # noqa: F403
