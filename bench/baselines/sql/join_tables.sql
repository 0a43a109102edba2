CREATE SCHEMA IF NOT EXISTS textbook;
CREATE TABLE IF NOT EXISTS textbook.place (
    event_id text NOT NULL,
    join_seq bigint NOT NULL,
    holder text NOT NULL,
    joined_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (event_id, join_seq),
    UNIQUE (event_id, holder)
);
