"""The price types of an event and of what was bought. There is no way back, as from 0008."""

from pathlib import Path

from shared.postgres.migrations import run_script

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    raise RuntimeError("Orders of this version cannot become those of 0.1.0 again. Restore the backup.")
