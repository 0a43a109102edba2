"""`POST /webhooks/{provider}`: the webhooks of payment providers.

An ASGI class, as every purchase brings one or more; problems are raised to the app's handlers.
"""

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from services.orders.api.schemas import WebhookStored
from services.orders.problems import UnknownProvider
from services.orders.state import State
from shared.web.fast_routes import JSON, QUIET_KEY, FastRoute, answer, path_parameter

STORED = WebhookStored().model_dump_json().encode()


class PaymentWebhookRoute:
    """Answers with bytes as soon as the webhook is stored."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[QUIET_KEY] = True
        state: State = scope["app"].state.deps
        provider = state.providers.get(scope["path_params"]["provider"])
        if provider is None:
            raise UnknownProvider
        request = Request(scope, receive)
        await state.webhook_inbox.receive(provider, request.headers, await request.body())
        await answer(send, 200, STORED, JSON)


PAYMENT_WEBHOOKS = FastRoute(
    "POST", "/webhooks/{provider}", PaymentWebhookRoute(), tag="webhooks",
    summary="Receive a payment provider's webhook", parameters=[path_parameter("provider", "[a-z]{1,32}")],
    answers={200: ("Stored", WebhookStored)},
    refusals={
        401: "Not signed by the provider, or its signature is too old",
        404: "There is no payment provider with this name",
    },
)  # fmt: skip
