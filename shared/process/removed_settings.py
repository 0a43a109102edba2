"""Settings that earlier versions read and this one does not: a process that still finds one names it.

CHANGELOG.md says what holds instead of each.
"""

import os
from collections.abc import Mapping

from pydantic_settings import BaseSettings

from shared.process.secrets_dir import with_files

REMOVED: Mapping[str, str] = {  # by service; those of `ONSALE` were of every service
    "ONSALE": "clock_offset_ms pubsub event_log_replicas wrong_keys_per_minute body_max_bytes "
    "internal_body_max_bytes postgres_pool_wait_s postgres_connect_timeout_s postgres_lock_timeout_ms "
    "postgres_statement_timeout_ms postgres_idle_transaction_timeout_ms postgres_answer_timeout_s "
    "user_jwt_algorithms user_jwt_refetch_s user_jwt_refresh_s allow_insecure_cookies fan_calls_burst "
    "wrong_codes_address_at_once wrong_codes_address_per_minute",
    "ORDERS": "retry_first_s post_end_sync_delays_s event_workers_max event_routine_max sweep_s lease_s "
    "job_accept_s inline_slots_max inline_timeout_s webhook_poll_interval_s webhook_endpoint_concurrency "
    "webhook_disable_after_s lapsed_pass_s load_interval_ms prints_waiting_max prints_kept_bytes "
    "allow_sandbox stripe_url provider_connections_max payment_retries retry_max_s webhook_allow_loopback "
    "webhook_timeout_s wrong_code_burst wrong_codes_per_minute pdf_workers prints_per_minute prints_burst "
    "smtp_timeout_s mail_retry_first_s mails_per_address reminder_lead_s workers",
    "NOTIFIER": "full_retry_ms lag_max_s filters_per_event stream_max_age_s half_open_max_s slow_reader_max_s "
    "socket_buffer_bytes first_snapshot_timeout_s ask_interval_s feed_idle_ttl_s heartbeat_s retry_ms "
    "streams_new_per_s memory_free_min_mib channel_stale_after_s",
    "INVENTORY": "claims_waiting_max hold_batch_max hold_batch_max_contended hold_waiting_max redis_check_interval_ms "
    "expiry_interval_ms expiry_scan_interval_ms publish_interval_ms allotment_interval_ms "
    "load_interval_ms given_back_at_once given_back_pause_s reconcile_interval_s",
    "CONSOLE": "watcher_messages_max answer_max_s audit_interval_s changes_interval_s heartbeat_s pages_dir "
    "watchers_max rehearsal_max_s",
    "GATEWAY": "queue_cookie_s joins_waiting_max pending_requests_max cold_lookups_max rate_limit_keys_max "
    "events_max wrong_codes_per_s poll_min_ms poll_max_ms address_joins_burst identity_calls_per_s "
    "identity_calls_burst return_links_per_minute",
    "QUEUE": "tick_s join_batches_in_flight_max guard_interval_s guard_step_s throttle_recovery_s "
    "autotune_interval_s ramp_after_loss",
}


def removed_and_set(settings: BaseSettings) -> list[str]:
    """The variables of this service, under its own prefix or `ONSALE_`, that are set without effect."""
    prefix = settings.model_config.get("env_prefix", "")
    fields = f"{REMOVED['ONSALE']} {REMOVED.get(prefix.rstrip('_'), '')}".upper().split()
    variables = {f"{start}{field}" for field in fields for start in (prefix, "ONSALE_")}
    return sorted(variables & {name.upper() for name in with_files(os.environ)})
