"""What the pages add, and where."""

from shared.features import Feature

FEATURE = Feature(
    name="pages",
    what="The pages of events, of the line and of orders, with and without scripts, and buttons for other sites.",
    parts={
        "gateway": "features.pages.gateway.api:PART", "inventory": "features.pages.inventory:PART",
        "orders": "features.pages.orders:PART",
    },
    problem_page="features.pages.problem_page",
)  # fmt: skip
