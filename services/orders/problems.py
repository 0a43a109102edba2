"""What may go wrong with an order, beyond what the whole suite shares."""

from shared.web.problems import Problem


class UnknownOrder(Problem):
    """There is no order with this reference, or it is not yours."""

    status = 404


class UnknownProvider(Problem):
    """There is no payment provider of this name."""

    status = 404


class PriceChanged(Problem):
    """The price is no longer what was shown. Nothing was charged."""

    status = 409


class PromoCodeNotValid(Problem):
    """This promo code is not valid."""

    status = 422


class UnknownPromoCode(Problem):
    """There is no promo code of this name at this event."""

    status = 404


class CardNumberRefused(Problem):
    """Card numbers are not taken here; send the provider's token."""

    status = 422


class ReservationTaken(Problem):
    """Another order took over this reservation; order again with a new Idempotency-Key."""

    status = 409


class OrderNotPending(Problem):
    """The order cannot do that any more."""

    status = 409


class BadSignature(Problem):
    """The webhook is not signed by the provider, or its signature is too old."""

    status = 401


class NoTickets(Problem):
    """This order has no tickets to print: it is not confirmed, or they were given back."""

    status = 409


class NoReceipt(Problem):
    """Nothing was paid yet."""

    status = 409


class UnknownTicket(Problem):
    """This order has no such ticket that is good."""

    status = 404


class MailDisabled(Problem):
    """No mail is sent from here."""

    status = 409


class RefundRefused(Problem):
    """There is nothing left to refund."""

    status = 409


class DecisionNotAllowed(Problem):
    """This cannot be decided about the order."""

    status = 409


class NoEventRefund(Problem):
    """Nobody asked for this event to be refunded."""

    status = 404


class EventRefundFinished(Problem):
    """The refund of this event is done."""

    status = 409


class UnknownCommand(Problem):
    """There is no command with this id."""

    status = 404


class NotReplayable(Problem):
    """Running this command again could do nothing."""

    status = 409


class UnknownWebhook(Problem):
    """There is no webhook endpoint with this id."""

    status = 404


class UnknownDelivery(Problem):
    """There is no delivery with this id, or its endpoint was removed."""

    status = 404


class WebhookUrlRefused(Problem):
    """Webhooks are not sent to this address."""

    status = 422


class TooManyWebhooks(Problem):
    """There are as many webhook endpoints as there may be."""

    status = 409
