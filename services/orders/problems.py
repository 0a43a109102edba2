"""What may go wrong with an order, beyond what the whole suite shares."""

from shared.problems import Problem


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


class OrderGivenUp(Problem):
    """Another order took over this reservation; order again with a new Idempotency-Key."""

    status = 409


class OrderEnded(Problem):
    """The order cannot do that any more."""

    status = 409


class PaymentUnderway(Problem):
    """A payment of this order is under way."""

    status = 409


class BadSignature(Problem):
    """The webhook is not signed by the provider, or its signature is too old."""

    status = 401


class RefundRefused(Problem):
    """There is nothing left to refund."""

    status = 409
