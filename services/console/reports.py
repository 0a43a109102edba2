"""The report of a sale for the promoter, as `onsale report` writes it, made from what the admin APIs answer."""

from services.console.gathering.admin_api import AdminApi
from shared.concurrency.coalescing import CachedReads
from shared.errors.problems import Problem
from shared.report.page import write_page
from shared.report.sale import read_sale

REPORT_MAX_S = 30.0


class ReportPages:
    """Each is made at most once a second, whoever asks: counting a large sale costs its databases something."""

    def __init__(self, admin: AdminApi) -> None:
        self._admin = admin
        self._pages: CachedReads[str] = CachedReads.for_reports()

    async def page(self, event_id: str) -> str:
        """The whole page. Raises the problem of the service that refuses or does not answer."""
        return await self._pages.get(event_id, lambda: self._write(event_id))

    async def _write(self, event_id: str) -> str:
        return write_page(await read_sale(self._admin.ask, event_id, failure=Problem))
