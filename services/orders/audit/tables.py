"""The table of the audit log."""

from services.orders.tables import metadata
from shared.postgres.audit_log import audit_log_table

audit_log = audit_log_table(metadata)
