"""Order support: find orders and what happened to them, decide about those in review, refund a whole event."""
