"""The queue's part: how fans flow through the line."""

from features.reports.queue.flow import router
from features.reports.reading import Counts
from shared.web.parts import Part

PART = Part(routers=[router], open=Counts)
