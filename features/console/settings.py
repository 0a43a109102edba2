"""Settings of the console."""

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from shared.process.settings import PublicSettings


class Settings(PublicSettings):
    """The console keeps samples of figures and requests for approval, nothing else; the limits bound who watches and
    what is gathered.
    """

    unread_keys = frozenset({"holder_keys"})
    model_config = SettingsConfigDict(env_prefix="CONSOLE_")

    admin_url: str = Field(
        "http://127.0.0.1:8000",
        description="Where the admin APIs answer; {service} in it becomes queue, inventory or orders.",
    )
    alertmanager_url: str | None = Field(
        None, pattern="^https?://", description="Where Alertmanager answers; its alarms are shown beside the console's."
    )
    link_secret: SecretStr | None = Field(
        None, min_length=20, description="Secret of the one-time link, which signs in the first admin; unset: no link."
    )
    events_max: int = Field(50, ge=1, le=1000, description="Events that are gathered at the same time.")
    samples_kept_days: int = Field(30, ge=1, le=3650, description="How long samples of figures are kept.")
