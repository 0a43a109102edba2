"""When wheelchair and companion places are offered to everybody."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE inventory.event ADD COLUMN accessible_release_at TIMESTAMPTZ, "
        "ADD COLUMN accessible_released_at TIMESTAMPTZ"
    )


def downgrade() -> None:
    op.execute("ALTER TABLE inventory.event DROP COLUMN accessible_release_at, DROP COLUMN accessible_released_at")
