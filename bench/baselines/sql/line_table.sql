CREATE SCHEMA IF NOT EXISTS textbook;
CREATE TABLE textbook.line (
    join_seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    holder text NOT NULL UNIQUE,
    admitted_at timestamptz
);
CREATE INDEX line_waiting ON textbook.line (join_seq) WHERE admitted_at IS NULL;
