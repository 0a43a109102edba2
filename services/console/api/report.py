"""The report of a sale, to read in the browser or to save and send."""

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from services.console.state import StateDep
from shared.contracts.admin.console import REPORT_PATH
from shared.security.auth import Viewer
from shared.web.request import EventIdPath

router = APIRouter(tags=["console"])
HEADERS = {
    "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


@router.get(REPORT_PATH, summary="Get the report of a sale", response_class=HTMLResponse)
async def read_report(
    event_id: EventIdPath, _operator: Viewer, state: StateDep, download: bool = False
) -> HTMLResponse:  # fmt: skip
    """One page without scripts; it names no fan. `download`: as a file."""
    name = {"content-disposition": f'attachment; filename="{event_id}-report.html"'} if download else {}
    return HTMLResponse(await state.reports.page(event_id), headers=HEADERS | name)
