"""What stock administration adds to inventory, to event files and to the command line."""

from shared.features import CliCommand, Feature

OPERATE = "Operate a sale"

FEATURE = Feature(
    name="stock",
    what="Changes an event's stock while it sells: blocks, allotments, stock by code; decides about oversold tickets.",
    parts={"inventory": "features.stock.inventory:PART"},
    file_parts={"event": "features.stock.rules:EventAllotments", "sales": "features.stock.rules:SalesOversell"},
    commands=(
        CliCommand("stock", "features.stock.cli:app", OPERATE, "Show and change the stock of an event while it sells."),
        CliCommand("reconcile show", "features.stock.cli:show_drift", OPERATE,
                   "List drift and oversell findings of an event. Exit code 1 if something waits for approval."),
        CliCommand("reconcile approve", "features.stock.cli:approve", OPERATE,
                   "Approve oversell cases: cancel and refund the latest buyers of oversold tickets."),
    ),
)  # fmt: skip
