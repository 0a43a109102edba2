CREATE SCHEMA {0};
CREATE TABLE {0}.section (
    section_id text PRIMARY KEY,
    capacity integer NOT NULL,
    seats_remaining integer NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE {0}.hold (
    hold_id text PRIMARY KEY,
    section_id text NOT NULL,
    quantity integer NOT NULL,
    held_until timestamptz NOT NULL
);
