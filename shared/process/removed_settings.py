"""Settings that earlier versions read and this one does not: a process that still finds one names it.

CHANGELOG.md says what holds instead of each.
"""

import os
from collections.abc import Mapping

from pydantic_settings import BaseSettings

from shared.process.secrets_dir import with_files

REMOVED: Mapping[str, str] = {  # by service; those of `ONSALE` were of every service
    "ONSALE": "clock_offset_ms",
    "ORDERS": "retry_first_s post_end_sync_delays_s event_workers_max event_routine_max "
    "sweep_s lease_s job_accept_s inline_slots_max inline_timeout_s webhook_poll_interval_s "
    "webhook_endpoint_concurrency webhook_disable_after_s lapsed_pass_s load_interval_ms prints_waiting_max "
    "prints_kept_bytes",
    "NOTIFIER": "full_retry_ms lag_max_s filters_per_event stream_max_age_s half_open_max_s slow_reader_max_s "
    "socket_buffer_bytes first_snapshot_timeout_s ask_interval_s feed_idle_ttl_s",
    "INVENTORY": "claims_waiting_max hold_batch_max hold_batch_max_contended hold_waiting_max redis_check_interval_ms "
    "expiry_interval_ms expiry_scan_interval_ms publish_interval_ms allotment_interval_ms load_interval_ms",
    "CONSOLE": "watcher_messages_max answer_max_s audit_interval_s changes_interval_s",
    "GATEWAY": "queue_cookie_s joins_waiting_max pending_requests_max cold_lookups_max rate_limit_keys_max",
    "QUEUE": "tick_s join_batches_in_flight_max guard_interval_s guard_step_s throttle_recovery_s autotune_interval_s",
}


def removed_and_set(settings: BaseSettings) -> list[str]:
    """The variables of this service, under its own prefix or `ONSALE_`, that are set without effect."""
    prefix = settings.model_config.get("env_prefix", "")
    fields = f"{REMOVED['ONSALE']} {REMOVED.get(prefix.rstrip('_'), '')}".upper().split()
    variables = {f"{start}{field}" for field in fields for start in (prefix, "ONSALE_")}
    return sorted(variables & {name.upper() for name in with_files(os.environ)})
