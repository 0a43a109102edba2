CREATE SCHEMA IF NOT EXISTS textbook;
CREATE TABLE IF NOT EXISTS textbook.section (
    event_id text NOT NULL,
    section_id text NOT NULL,
    price_minor integer NOT NULL,
    seats_remaining integer NOT NULL CHECK (seats_remaining >= 0),
    PRIMARY KEY (event_id, section_id)
);
CREATE TABLE IF NOT EXISTS textbook.seat (
    event_id text NOT NULL,
    seat_id text NOT NULL,
    price_minor integer NOT NULL,
    status text NOT NULL DEFAULT 'available',
    reservation_id uuid,
    PRIMARY KEY (event_id, seat_id)
);
CREATE TABLE IF NOT EXISTS textbook.reservation (
    reservation_id uuid PRIMARY KEY,
    event_id text NOT NULL,
    holder text NOT NULL,
    ga_section text,
    ga_quantity integer NOT NULL,
    seats text[] NOT NULL,
    total_minor bigint NOT NULL,
    status text NOT NULL,
    reserved_until timestamptz NOT NULL
);
