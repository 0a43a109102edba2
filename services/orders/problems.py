"""The problems of orders, beyond those that all services share."""

from shared.errors.problems import Problem


class UnknownOrder(Problem, status=404):
    """There is no order with this reference, or it is not yours."""


class UnknownProvider(Problem, status=404):
    """There is no payment provider with this name."""


class PriceChanged(Problem, status=409):
    """The price has changed and nothing was charged. Check the new price and order again."""


class PromoCodeNotValid(Problem, status=422):
    """This promo code is not valid."""


class AmountNotPayable(Problem, status=422):
    """This amount cannot be paid here. Change the tickets or the promo code."""


class CardNumberRefused(Problem, status=422):
    """Card numbers are not accepted. Send the payment provider's token for the card."""


class ReservationTaken(Problem, status=409):
    """Another order took over this reservation. Order again with a new Idempotency-Key."""


class OrderNotPending(Problem, status=409):
    """This order is no longer waiting for payment."""


class BadSignature(Problem, status=401):
    """The webhook has no valid signature of the provider, or it is too old. Check the webhook secret and the clock."""


class UnknownTicket(Problem, status=404):
    """This order has no valid ticket with this id."""


class EmailLikelyMistyped(Problem, status=409):
    """The e-mail address looks mistyped, and nothing was done yet. Correct it, or send it again as it is."""


class AddressChangeRefused(Problem, status=409):
    """The e-mail address of this order can no longer be changed here: the order has ended, or it was changed before."""


class TicketNamesRefused(Problem, status=422):
    """The names do not fit the tickets: each ticket needs one name if the event asks for them, and none otherwise."""


class NameChangeRefused(Problem, status=409):
    """The names on these tickets can no longer be changed here."""


class RefundRefused(Problem, status=409):
    """This order has nothing left to refund."""


class RehearsalNeedsSandbox(Problem, status=409):
    """A rehearsal needs the sandbox as the only payment provider: with another, real money could move."""
