"""The settings that every service has; each service adds its own in its `settings.py`.

They are read once, when the service is built, from `<SERVICE>_<FIELD>` or else `ONSALE_<FIELD>`, and frozen. Each may
be a file instead (`shared/process/secrets_dir.py`). Defaults work on a laptop; in production a development secret stops
the start with one clear line.

The controls that `two_persons` may name are the operations whose routes say so. A process that finds a setting which
earlier versions read and this one does not names it; CHANGELOG.md says what holds instead.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from shared.contracts.admin.operator_calls import OPERATIONS
from shared.postgres.settings import PostgresSettings
from shared.process.secrets_dir import WithFiles, with_files
from shared.redis.url import RedisUrl
from shared.rules.addresses import ascii_origin
from shared.security.auth import AdminKeys, AdminKeysSetting
from shared.security.key_reload import from_file, rings_of
from shared.security.key_rotation import RotatingKeys
from shared.security.limits import LOOPBACK, NetworksSetting
from shared.security.tokens import DEVELOPMENT_KID, Keyring, development_keys


class GuardedRoute(NamedTuple):
    """The POST route of a control, the role that it needs of both persons, and the models of its body. The event stays
    a parameter of the path, an action is part of it.
    """

    path: str
    role: Literal["operator", "admin"]
    body: str


CONTROLS: dict[str, GuardedRoute] = {
    found.name: GuardedRoute(each.path.replace("{action}", found.action), found.role, each.body or "")
    for each in OPERATIONS.values()
    if (found := each.control)
}


def controls_of(text: str) -> frozenset[str]:
    """The controls of a comma list. Raises `ValueError` for an unknown one."""
    names = {name for part in text.split(",") if (name := part.strip())}
    if unknown := sorted(names - CONTROLS.keys()):
        raise ValueError(f"no such control: {', '.join(unknown)}; there are {', '.join(CONTROLS)}")
    return frozenset(names)


def listed(value: Any) -> Any:
    """The parts of a list as the environment gives it, separated by commas; in brackets, as earlier versions wanted
    numbers, or without.
    """
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.strip("[] ").split(",") if part.strip())


def _or_nothing(value: Any) -> Any:
    return None if value == "" else value


Maybe = BeforeValidator(_or_nothing)


def _keyring(value: Any) -> Any:
    return Keyring.parse(value) if isinstance(value, str) else value


Keys = Annotated[Keyring, NoDecode, BeforeValidator(_keyring)]


def _controls(value: Any) -> Any:
    return controls_of(value) if isinstance(value, str) else value


def _names(value: Any) -> Any:
    return frozenset(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


def _valid_redis_url(value: str) -> str:
    RedisUrl.parse(value)
    return value


class ServiceSettings(PostgresSettings):
    """The settings common to all services. `unread_keys` are those that a service does not read, and so need not be
    given.
    """

    unread_keys: ClassVar[frozenset[str]] = frozenset()
    model_config = SettingsConfigDict(
        frozen=True, arbitrary_types_allowed=True, extra="ignore", hide_input_in_errors=True
    )

    environment: Literal["development", "rehearsal", "production"] = Field(
        "development",
        description="Where this runs: production refuses development secrets, cookies without HTTPS and the sandbox as "
        "payment provider; a rehearsal only the first; development nothing.",
    )
    host: str = Field("127.0.0.1", description="Address the public and internal listeners bind to.")
    port: int = Field(0, ge=0, le=65535, description="Public port; 0 takes a free one.")
    internal_port: int = Field(0, ge=0, le=65535, description="Port of the internal listener; 0 takes a free one.")
    share_port: bool = Field(False, description="Let other processes listen on the public port too (SO_REUSEPORT).")
    redis_url: Annotated[str, AfterValidator(_valid_redis_url)] = Field(
        "redis://127.0.0.1:6379/0",
        description="Redis 6.2 or newer, or Valkey: redis:// one process, redis+sentinel:// the primary that sentinels "
        "name, redis+cluster:// a cluster; rediss with TLS.",
    )
    event_log_url: str | None = Field(
        None, description="The event log: nats://h1,h2,h3, kafka://h1,h2 or redis://…; unset, it is in redis_url."
    )
    event_log_length_max: int = Field(
        100_000,
        ge=1000,
        le=100_000_000,
        description="Approximate number of entries that a stream of the event log keeps in Redis.",
    )
    event_log_kept_h: int = Field(72, ge=1, le=8760, description="Hours for which NATS keeps the event log.")
    processes: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes of a service between which fans move. Limits against abuse that are counted in memory "
        "hold for all of them together: each process allows its part, rounded up.",
    )
    queue_url: str = Field("http://127.0.0.1:8102", description="Internal listener of the queue.")
    inventory_url: str = Field("http://127.0.0.1:8103", description="Internal listener of inventory.")
    orders_url: str = Field("http://127.0.0.1:8104", description="Internal listener of orders.")
    service_keys: Keys = Field(default_factory=lambda: development_keys("service"), description="Sign internal calls.")
    holder_keys: Keys = Field(
        default_factory=lambda: development_keys("holder"),
        description="Derive fans' ids from their sign-in or Idempotency-Key. Never rotated: a fan keeps the id.",
    )
    admin_keys: AdminKeysSetting = Field(AdminKeys(), description="Operators' API keys: name:role:secret[,…].")
    trusted_proxies: NetworksSetting = Field(
        LOOPBACK, description="Networks of the balancers in front, whose X-Forwarded-For is believed."
    )
    two_persons: Annotated[frozenset[str], NoDecode, BeforeValidator(_controls)] = Field(
        frozenset(),
        description=f"Controls that need a second operator's approval, separated by commas: {', '.join(CONTROLS)}.",
    )
    features_off: Annotated[frozenset[str], NoDecode, BeforeValidator(_names)] = Field(
        frozenset(), description="Installed features to leave out, by their names, separated by commas."
    )
    keys_file: Path | None = Field(
        None,
        description="File of rotating keys, written by `onsale keys`; reloaded on change. A keyring setting wins.",
    )
    log_requests: bool = Field(True, description="One JSON line per request, hot paths excepted.")
    log_sale: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the steps of a sale (joins, polls, calls, holds, batches, scripts, statements, frames, "
        "streams) that are logged, each with event, request and milliseconds: 0 none, 0.01 one in a hundred, 1 all.",
    )
    drain_delay_s: float = Field(
        0.0,
        ge=0,
        le=300,
        description="How long a stopping process still answers while not ready, so that balancers notice.",
    )
    shutdown_grace_s: float = Field(
        5.0, ge=0, le=300, description="How long requests in flight may take to finish at the end."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, WithFiles(settings_cls), WithFiles(settings_cls, "ONSALE_")

    @model_validator(mode="after")
    def _take_keys_of_the_file(self) -> Self:
        if self.keys_file is not None:
            try:
                keys = RotatingKeys.read(self.keys_file)
            except ValueError as broken:
                raise ValueError(f"the key file {self.keys_file}: {broken}") from broken
            for name, ring in rings_of(keys, from_file(self), now_s=time.time()).items():
                object.__setattr__(self, name, ring)
        return self

    @model_validator(mode="after")
    def _refuse_laptop_secrets(self) -> Self:
        if self.environment != "development":
            weak = [
                n
                for n in type(self).model_fields
                if isinstance(k := getattr(self, n), Keyring)
                and DEVELOPMENT_KID in k.keys
                and n not in self.unread_keys
            ]
            if weak:
                raise ValueError(f"in {self.environment} these secrets must be set: {', '.join(sorted(weak))}")
        return self


class PublicSettings(ServiceSettings):
    """The settings of services that fans reach. Over HTTPS cookies are named `__Host-…`, and no others are read."""

    secure_cookies: bool = Field(
        False, description="Send cookies over HTTPS only, and accept them from this host alone."
    )
    cache_entries_max: int = Field(
        65_536,
        ge=1,
        description="Entries of each cache of one process, such as verified tokens: 1 to 2 KB each. Fewer where memory "
        "is short.",
    )
    fan_calls_per_s: float = Field(
        20,
        gt=0,
        le=1e6,
        description="Calls of one fan, all tabs together, per second; ten seconds' worth at once.",
    )

    @model_validator(mode="after")
    def _refuse_plain_cookies(self) -> Self:
        if self.environment == "production" and not self.secure_cookies:
            raise ValueError(
                "in production cookies travel over HTTPS only: set ONSALE_SECURE_COOKIES=true, or to rehearse without "
                "HTTPS ONSALE_ENVIRONMENT=rehearsal"
            )
        return self


class PassKeys(BaseSettings):
    """Part of the settings of services that let fans in by their pass."""

    pass_public_keys: Keys = Field(
        default_factory=lambda: development_keys("pass").public(), description="Public keys of passes, newest first."
    )


class QueueTokenKeys(BaseSettings):
    """Part of the settings of services that know a fan by the place in the line."""

    queue_token_keys: Keys = Field(
        default_factory=lambda: development_keys("queue-token"),
        description="Sign and verify queue tokens, newest first.",
    )


class OrderTokenKeys(BaseSettings):
    """Part of the settings of services that know a fan by an order."""

    order_token_keys: Keys = Field(
        default_factory=lambda: development_keys("order-token"),
        description="Sign and verify order tokens, and derive the references of orders; long-lived.",
    )


class PublicAddress(BaseSettings):
    """Part of the settings of services that write links for fans."""

    public_url: Annotated[str, AfterValidator(ascii_origin)] = Field(
        "http://localhost:8000",
        pattern=r"^https?://[^\s/]+$",
        description="The public address of the shop, as fans type it: mails, tickets, shared links and search engines "
        "get it.",
    )


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
