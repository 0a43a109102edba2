"""A server of each kind, and an outbox."""

from tests.shared.messaging.conftest import environment, schema, server  # noqa: F401
