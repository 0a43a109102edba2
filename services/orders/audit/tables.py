"""The table of the audit log."""

from sqlalchemy import func

from services.orders.tables import metadata
from shared.audit_log import audit_log_table

audit_log = audit_log_table(metadata, at=func.now())  # as the rows of the same action, before which it is listed
