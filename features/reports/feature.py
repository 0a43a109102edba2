"""What the reports of a sale add to services and to the command line."""

from shared.features import CliCommand, Feature

CLI, OPERATE = "features.reports.cli", "Operate a sale"

FEATURE = Feature(
    name="reports",
    what="How fans flow through a sale, its report for the promoter, settlement, hold times and exports.",
    parts={
        "queue": "features.reports.queue:PART", "inventory": "features.reports.inventory:PART",
        "orders": "features.reports.orders:PART", "console": "features.reports.console:PART",
    },
    commands=tuple(CliCommand(name, where, OPERATE, line) for name, where, line in (
        ("flow", "features.reports.sale_report:flow",
         "Show how many fans joined, were called, held, ordered and bought; waits, what is pending, the sell-out."),
        ("report", "features.reports.sale_report:report",
         "Write the report of a sale as one HTML file without scripts: to read, to print, to send to the promoter."),
        ("order export", f"{CLI}:export_orders",
         "Export every order of an event as CSV, a line for each seat or GA section."),
        ("order settlement", f"{CLI}:settlement",
         "Show charges and refunds by day, provider and price type. Exit code 1 if a provider's list differs from "
         "ours."),
        ("stock export", f"{CLI}:export_stock", "Export every seat, or every sale, as CSV."),
        ("stock hold-times", f"{CLI}:hold_times",
         "Show how long fans take from hold to payment, who came back after losing a hold, and a suggested "
         "hold_ttl_s."),
        ("tickets list", f"{CLI}:list_tickets",
         "Download the tickets of an event, void ones included, for scanners without a network."),
    )),
)  # fmt: skip
