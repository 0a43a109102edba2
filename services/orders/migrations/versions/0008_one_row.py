"""An order is one row; what 0.1.0 kept in seven tables stands aside in `orders_0_1` until 0009 has carried it.

There is no way back: what the new version writes the old one cannot read. Restore the backup instead.
"""

from pathlib import Path

from shared.postgres.migrations import run_script

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    run_script(Path(__file__).with_suffix(".sql").read_text())


def downgrade() -> None:
    raise RuntimeError("Orders of this version cannot become those of 0.1.0 again. Restore the backup.")
