"""The charges of the money ledger, each with what of it went back, as a view. There is no way back, as from 0008."""

from pathlib import Path

from shared.postgres.migrations import run_script

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    raise RuntimeError("Orders of this version cannot become those of 0.1.0 again. Restore the backup.")
