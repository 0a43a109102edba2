"""The problems of orders, beyond those that all services share."""

from shared.web.problems import Problem


class UnknownOrder(Problem):
    """There is no order with this reference, or it is not yours."""

    status = 404


class UnknownProvider(Problem):
    """There is no payment provider with this name."""

    status = 404


class PriceChanged(Problem):
    """The price has changed and nothing was charged. Check the new price and order again."""

    status = 409


class PromoCodeNotValid(Problem):
    """This promo code is not valid."""

    status = 422


class UnknownPromoCode(Problem):
    """This event has no promo code with this name."""

    status = 404


class CardNumberRefused(Problem):
    """Card numbers are not accepted. Send the payment provider's token for the card."""

    status = 422


class ReservationTaken(Problem):
    """Another order took over this reservation. Order again with a new Idempotency-Key."""

    status = 409


class OrderNotPending(Problem):
    """This order is no longer waiting for payment."""

    status = 409


class BadSignature(Problem):
    """The webhook has no valid signature of the provider, or it is too old. Check the webhook secret and the clock."""

    status = 401


class NoTickets(Problem):
    """This order has no tickets: it is not confirmed, or it was refunded."""

    status = 409


class NoReceipt(Problem):
    """This order has no receipt: nothing was paid yet."""

    status = 409


class UnknownTicket(Problem):
    """This order has no valid ticket with this id."""

    status = 404


class MailDisabled(Problem):
    """No mail server is configured. Set ORDERS_SMTP_URL to send mail."""

    status = 409


class RefundRefused(Problem):
    """This order has nothing left to refund."""

    status = 409


class DecisionNotAllowed(Problem):
    """This decision is not allowed for the order."""

    status = 409


class NoEventRefund(Problem):
    """No refund of this event was requested."""

    status = 404


class EventRefundFinished(Problem):
    """The refund of this event has finished."""

    status = 409


class UnknownCommand(Problem):
    """There is no command with this id."""

    status = 404


class NotReplayable(Problem):
    """Replaying this command would change nothing."""

    status = 409


class UnknownWebhook(Problem):
    """There is no webhook endpoint with this id."""

    status = 404


class UnknownDelivery(Problem):
    """There is no delivery with this id, or its endpoint was deleted."""

    status = 404


class WebhookUrlRefused(Problem):
    """Webhooks are not sent to this URL. Use https and a public address."""

    status = 422


class TooManyWebhooks(Problem):
    """The maximum number of webhook endpoints is reached. Delete one first."""

    status = 409
