"""`POST /webhooks/{provider}`: the webhooks of payment providers. Every purchase brings one or more."""

from starlette.datastructures import Headers

from services.orders.api.schemas import WebhookStored
from services.orders.problems import UnknownProvider
from services.orders.state import State
from shared.web.answers import JSON, Answer
from shared.web.fast_routes import FastRoute, path_parameter
from shared.web.request import Request

STORED = Answer(200, WebhookStored().model_dump_json().encode(), (JSON,))


async def receive_webhook(request: Request) -> Answer:
    """Answers as soon as the webhook is stored."""
    state: State = request.state
    provider = state.providers.get(request.path["provider"])
    if provider is None:
        raise UnknownProvider
    await state.webhook_inbox.receive(provider, Headers(scope=request.scope), await request.body())
    return STORED


PAYMENT_WEBHOOKS = FastRoute(
    "POST", "/webhooks/{provider}", receive_webhook, tag="webhooks",
    summary="Receive a payment provider's webhook", parameters=[path_parameter("provider", "^[a-z]{1,32}$")],
    answers={200: ("Stored", WebhookStored)},
    refusals={
        401: "Not signed by the provider, or its signature is too old",
        404: "There is no payment provider with this name",
    },
)  # fmt: skip
