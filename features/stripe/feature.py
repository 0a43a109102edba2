"""What Stripe adds: its settings, and the provider."""

from shared.features import Feature, PaymentProvider

FEATURE = Feature(
    name="stripe",
    what="Takes payments by Stripe: a card by its token, or on Stripe's own page.",
    parts={"orders": "features.stripe.orders:PART"},
    providers=[
        PaymentProvider(
            "stripe", "features.stripe.provider:open_provider", limits="features.stripe.orders:stripe_limits"
        )
    ],
)
