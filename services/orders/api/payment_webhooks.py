"""`POST /webhooks/{provider}`: the webhooks of payment providers.

An ASGI class, as every purchase brings one or more; problems are raised to the app's handlers.
"""

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from services.orders.api.schemas import WebhookStored
from services.orders.payments.webhook_inbox import receive_webhook
from services.orders.problems import UnknownProvider
from services.orders.state import State
from shared.web.fast_routes import JSON, answer

STORED = WebhookStored().model_dump_json().encode()


class PaymentWebhookRoute:
    """Answers with bytes as soon as the webhook is stored."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state: State = scope["app"].state.deps
        provider = state.providers.get(scope["path_params"]["provider"])
        if provider is None:
            raise UnknownProvider
        request = Request(scope, receive)
        await receive_webhook(state.webhook_inbox, provider, request.headers, await request.body())
        await answer(send, 200, STORED, JSON)


PAYMENT_WEBHOOKS = Route("/webhooks/{provider}", PaymentWebhookRoute(), methods=["POST"])
