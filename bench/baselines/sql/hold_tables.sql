CREATE SCHEMA IF NOT EXISTS textbook;
CREATE TABLE IF NOT EXISTS textbook.section (section_id text PRIMARY KEY, seats_remaining integer NOT NULL);
CREATE TABLE IF NOT EXISTS textbook.hold (
    hold_id text PRIMARY KEY, section_id text NOT NULL, quantity integer NOT NULL, held_until timestamptz NOT NULL,
    ended_at timestamptz
);
CREATE INDEX IF NOT EXISTS hold_due ON textbook.hold (held_until) WHERE ended_at IS NULL;
CREATE TABLE IF NOT EXISTS textbook.job (
    job_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, hold_id text NOT NULL, run_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS job_due ON textbook.job (run_at);
