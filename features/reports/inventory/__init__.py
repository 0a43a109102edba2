"""Inventory's part: how fans flow through holds, hold times, and exports of seats and sales."""

from features.reports.inventory import exports, flow, hold_times
from features.reports.reading import Counts
from shared.web.parts import Part

PART = Part(routers=[flow.router, hold_times.router, exports.router], open=Counts)
