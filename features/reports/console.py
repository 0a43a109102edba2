"""The console's part: the report of a sale as `onsale report` writes it, to read in the browser or to save and send.

The console is a feature, too, so nothing of it is imported: its state has the client of the admin APIs.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import HTMLResponse

from features.reports.page import write_page
from features.reports.reading import Counts
from features.reports.sale import read_sale
from shared.concurrency.background import Loops
from shared.contracts.admin.operator_calls import OperatorCalls
from shared.errors.problems import Problem
from shared.security.auth import Viewer
from shared.web.parts import Part, opened
from shared.web.request import EventIdPath

router = APIRouter(tags=["console"])
ANSWER_MAX_S = 30.0
HEADERS = {
    "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class ReportPages(Counts):
    """Each page is made at most once a second, whoever asks."""

    def __init__(self, state: Any, loops: Loops) -> None:
        super().__init__(state, loops)
        self._admin: OperatorCalls = state.admin.within(ANSWER_MAX_S)

    async def page(self, event_id: str) -> str:
        """Raises the problem of the service that refuses or does not answer."""

        async def write() -> str:
            return write_page(await read_sale(self._admin, event_id, failure=Problem))

        return await self.get(event_id, write)


@router.get(
    "/console/api/events/{event_id}/report", operation_id="export_report", summary="Get the report of a sale",
    response_class=HTMLResponse,
)  # fmt: skip
async def read_report(
    event_id: EventIdPath, _operator: Viewer, pages: Annotated[ReportPages, Depends(opened(ReportPages))],
    download: bool = False,
) -> HTMLResponse:  # fmt: skip
    """One page without scripts; it names no fan. `download`: as a file."""
    name = {"content-disposition": f'attachment; filename="{event_id}-report.html"'} if download else {}
    return HTMLResponse(await pages.page(event_id), headers=HEADERS | name)


PART = Part(routers=[router], open=ReportPages)
