"""Describes the feature."""

from shared.features import CliCommand, Feature

FEATURE = Feature(
    name="support",
    what="Order support: search, timelines, the log of commands, decisions about orders in review, event refunds.",
    parts={"orders": "features.support.orders:PART"},
    commands=tuple(CliCommand(f"order {name}", "features.support.cli:app", "Operate a sale", line) for name, line in (
        ("find", "Find orders, newest first."),
        ("show", "Show the timeline of an order."),
        ("resolve", "Resolve an order in review: confirm the sale, refund the money, or end the order."),
        ("rename", "Change the name on a ticket, also after the time until which buyers may."),
        ("retry", "Retry an order now: do what is due later, and ask its payment provider again."),
        ("refund-event", "Refund all orders of an event; show the progress, pause or resume it."),
        ("commands", "List the commands of orders, newest first: cause, attempts and error of each."),
        ("rerun", "Replay a command now instead of at its next attempt."),
    )),
)  # fmt: skip
