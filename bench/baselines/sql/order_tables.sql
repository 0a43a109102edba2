CREATE SCHEMA IF NOT EXISTS textbook;
CREATE TABLE IF NOT EXISTS textbook.reservation (
    reservation_id text PRIMARY KEY, event_id text NOT NULL, holder text NOT NULL, section_id text NOT NULL,
    quantity integer NOT NULL, unit_price_minor bigint NOT NULL, status text NOT NULL, order_reference text,
    reserved_until timestamptz NOT NULL
);
CREATE TABLE IF NOT EXISTS textbook.idempotency (
    holder text NOT NULL, key text NOT NULL, fingerprint bytea NOT NULL, reference text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (holder, key)
);
CREATE TABLE IF NOT EXISTS textbook.orders (
    reference text PRIMARY KEY, event_id text NOT NULL, reservation_id text NOT NULL UNIQUE, holder text NOT NULL,
    status text NOT NULL, total_minor bigint NOT NULL, currency text NOT NULL, customer_name text NOT NULL,
    customer_email text NOT NULL, expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(), confirmed_at timestamptz
);
CREATE INDEX IF NOT EXISTS orders_holder ON textbook.orders (holder, created_at);
CREATE TABLE IF NOT EXISTS textbook.order_line (
    reference text NOT NULL, line_no integer NOT NULL, section_id text NOT NULL, quantity integer NOT NULL,
    unit_price_minor bigint NOT NULL, PRIMARY KEY (reference, line_no)
);
CREATE TABLE IF NOT EXISTS textbook.attempt (
    provider_key text PRIMARY KEY, reference text NOT NULL, method text NOT NULL, amount_minor bigint NOT NULL,
    status text NOT NULL, provider_ref text
);
CREATE TABLE IF NOT EXISTS textbook.money_entry (
    provider_ref text PRIMARY KEY, reference text NOT NULL, amount_minor bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS textbook.outbox (
    id bigserial PRIMARY KEY, event_id text NOT NULL, body jsonb NOT NULL
);
