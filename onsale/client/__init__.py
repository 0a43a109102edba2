"""The Python client: `Client` for fans and shops, `Fan` for the whole way of one fan, `Operator` for operators.

It needs httpx, orjson and, for operators, pydantic; it imports no service.
"""

from onsale.client.connection import Problem, Update
from onsale.client.fan import Fan, NotCalled, Pace, Paying
from onsale.client.fan_calls import Client
from onsale.client.operator import Operator
from onsale.client.webhooks import WebhookRefused, verify_webhook

__all__ = [
    "Client", "Fan", "NotCalled", "Operator", "Pace", "Paying", "Problem", "Update", "WebhookRefused", "verify_webhook",
]  # fmt: skip
