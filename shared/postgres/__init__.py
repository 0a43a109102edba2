"""PostgreSQL: connections, errors, transactions behind a fence, migrations."""
