"""`onsale room plan`."""

from typing import Annotated

import typer

from onsale.admin_client import given
from onsale.cli.context import EventId, for_suite, out, with_admin


@for_suite
def plan(
    event_id: EventId,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Admissions per second to try.")] = None,
    max_active: Annotated[int | None, typer.Option(min=1, help="Most fans inside at once, to try.")] = None,
) -> None:
    """Estimate when the present line will be drained and everything sold with these values. Changes nothing."""
    values = given({"rate_per_s": rate, "max_active": max_active})
    planned = with_admin(lambda admin: admin.plan_capacity(event_id, values))
    out.print(planned.summary, soft_wrap=True)
    if planned.sells_out_at and planned.sells_out_between:
        earliest, latest = (f"{at:%H:%M} UTC" if at else "never" for at in planned.sells_out_between)
        sold = f"Sold out at {planned.sells_out_at:%H:%M} UTC, at the earliest {earliest}, at the latest {latest}"
        out.print(f"{sold}; {planned.in_vain} of the line wait in vain.", soft_wrap=True)
