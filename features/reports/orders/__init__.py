"""Orders' part: how fans flow through orders, settlement with the providers, and exports of orders and tickets."""

from features.reports.orders import exports, flow, settlement
from features.reports.reading import Counts
from shared.web.parts import Part

PART = Part(routers=[flow.router, settlement.router, exports.router], open=Counts)
