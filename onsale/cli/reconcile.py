"""`onsale reconcile`: compare the stock in Redis with PostgreSQL."""

import time

from onsale.cli.context import AdminCommands, EventId, Reason, out, with_admin

LASTING_AFTER_S = 5.5  # a difference is corrected when it is found again after five seconds
app = AdminCommands(help="Compare the stock in Redis with PostgreSQL, list differences and oversold tickets.")


@app.command()
def now(event_id: EventId, reason: Reason = None) -> None:
    """Compare now and, if something differs, again after five seconds. Differences that last are corrected."""
    result = with_admin(lambda admin: admin.reconcile(event_id, {"reason": reason}))
    if result.differences:
        out.print(f"{result.differences} differences; comparing again in {LASTING_AFTER_S:g} s", style="dim")
        time.sleep(LASTING_AFTER_S)
        result = with_admin(lambda admin: admin.reconcile(event_id, {"reason": reason}))
    out.print(f"{event_id}: {result.differences} differences, {result.old} lasting, {result.corrected} corrected")
