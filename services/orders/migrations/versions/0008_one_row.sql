-- What 0.1.0 kept in seven tables stands aside, to be carried over in pieces (0009).
CREATE SCHEMA orders_0_1;
ALTER TABLE orders.money_entry DROP CONSTRAINT fk_money_entry_reference;
ALTER TABLE orders.refund DROP CONSTRAINT fk_refund_reference;
ALTER TABLE orders.mail DROP CONSTRAINT fk_mail_reference;
ALTER TABLE orders.promo_redemption DROP CONSTRAINT fk_promo_redemption_reference;
ALTER TABLE orders."order" SET SCHEMA orders_0_1;
ALTER TABLE orders.order_line SET SCHEMA orders_0_1;
ALTER TABLE orders.order_adjustment SET SCHEMA orders_0_1;
ALTER TABLE orders.payment_attempt SET SCHEMA orders_0_1;
ALTER TABLE orders.checkout_command SET SCHEMA orders_0_1;
ALTER TABLE orders.ticket SET SCHEMA orders_0_1;
ALTER TABLE orders.idempotency SET SCHEMA orders_0_1;
-- The queue of jobs, with which processes woke each other.
DROP TABLE IF EXISTS orders.pgqueuer, orders.pgqueuer_log, orders.pgqueuer_schedules, orders.pgqueuer_statistics CASCADE;
DROP FUNCTION IF EXISTS orders.fn_pgqueuer_changed CASCADE;
DROP TYPE IF EXISTS orders.pgqueuer_status, orders.pgqueuer_statistics_status CASCADE;

CREATE TABLE orders."order" (
    reference TEXT NOT NULL,
    event_id TEXT,
    reservation_id TEXT,
    owner_id TEXT,
    key_hash BYTEA,
    fingerprint BYTEA,
    lane INTEGER DEFAULT 0 NOT NULL,
    join_seq BIGINT DEFAULT 0 NOT NULL,
    total_minor BIGINT,
    currency TEXT,
    customer_name TEXT,
    customer_phone TEXT,
    language TEXT DEFAULT 'en' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    grace_s INTEGER DEFAULT 0 NOT NULL,
    traceparent TEXT,
    extras JSONB DEFAULT '[]'::jsonb NOT NULL,
    customer_email TEXT,
    address_changes INTEGER DEFAULT 0 NOT NULL,
    unmailed_at TIMESTAMP WITH TIME ZONE,
    status TEXT NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    extended_at TIMESTAMP WITH TIME ZONE,
    confirmed_at TIMESTAMP WITH TIME ZONE,
    fulfilled_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    end_reason TEXT,
    cancel_requested_at TIMESTAMP WITH TIME ZONE,
    released_at TIMESTAMP WITH TIME ZONE,
    charge_ref TEXT,
    dispute TEXT,
    review_decision TEXT,
    version BIGINT DEFAULT 0 NOT NULL,
    lines JSONB DEFAULT '[]'::jsonb NOT NULL,
    attempts JSONB DEFAULT '[]'::jsonb NOT NULL,
    journal JSONB DEFAULT '[]'::jsonb NOT NULL,
    CONSTRAINT pk_order PRIMARY KEY (reference),
    CONSTRAINT ck_order_complete CHECK (status = 'tombstone' OR (event_id IS NOT NULL AND reservation_id IS NOT NULL
        AND owner_id IS NOT NULL AND total_minor >= 0 AND currency IS NOT NULL AND expires_at IS NOT NULL)),
    CONSTRAINT uq_order_reservation_id UNIQUE (reservation_id),
    CONSTRAINT uq_order_owner_id_key_hash UNIQUE (owner_id, key_hash)
) WITH (fillfactor = 45);
CREATE INDEX ix_order_user ON orders."order" (split_part(owner_id, ':', 2), created_at)
    WHERE left(split_part(owner_id, ':', 2), 5) = 'user.';
CREATE INDEX ix_order_email ON orders."order" (lower(customer_email));
CREATE INDEX ix_order_unmailed ON orders."order" (created_at, reference) WHERE unmailed_at IS NOT NULL;
CREATE INDEX ix_order_created_at ON orders."order" (created_at, reference);
CREATE INDEX ix_order_event ON orders."order" (event_id, created_at, reference);
COMMENT ON COLUMN orders."order".key_hash IS 'Hash of the idempotency key that created it.';
COMMENT ON COLUMN orders."order".fingerprint IS 'Hash of the request; another one with this key is refused.';
COMMENT ON COLUMN orders."order".traceparent IS 'The trace that its steps continue; null unless its checkout was traced.';
COMMENT ON COLUMN orders."order".extras IS 'Its discounts, fees and taxes.';
COMMENT ON COLUMN orders."order".address_changes IS 'How often its buyer corrected the e-mail address.';
COMMENT ON COLUMN orders."order".unmailed_at
    IS 'When a mail to its buyer was given up; null again once one was sent, or the address changed.';
COMMENT ON COLUMN orders."order".extended_at IS 'When its buyer was given more time to pay; possible once.';
COMMENT ON COLUMN orders."order".dispute
    IS 'The dispute of its charge as the provider last reported it: open, won or lost.';
COMMENT ON COLUMN orders."order".review_decision
    IS 'Decision of an operator about an order in review: confirm, refund or expire.';
COMMENT ON COLUMN orders."order".lines IS 'What was bought, each ticket by itself.';
COMMENT ON COLUMN orders."order".attempts IS 'Each try to charge it, in order.';
COMMENT ON COLUMN orders."order".journal IS 'What was done for it, and why.';

CREATE TABLE orders.open_order (
    reference TEXT NOT NULL,
    event_id TEXT NOT NULL,
    join_seq BIGINT NOT NULL,
    owner TEXT NOT NULL,
    epoch INTEGER DEFAULT 0 NOT NULL,
    wakes BIGINT DEFAULT 0 NOT NULL,
    woken BOOLEAN DEFAULT false NOT NULL,
    sync_requested BOOLEAN DEFAULT false NOT NULL,
    errors INTEGER DEFAULT 0 NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_open_order PRIMARY KEY (reference)
) WITH (fillfactor = 70);
CREATE INDEX ix_open_order_owner ON orders.open_order (owner);
CREATE INDEX ix_open_order_woken ON orders.open_order (owner, reference) WHERE woken;
COMMENT ON COLUMN orders.open_order.owner IS 'The process that works on it; empty: whichever takes it.';
COMMENT ON COLUMN orders.open_order.epoch IS 'How often it changed hands.';
COMMENT ON COLUMN orders.open_order.wakes IS 'How often something was asked of it.';
COMMENT ON COLUMN orders.open_order.woken IS 'Its owner has not looked since.';

CREATE TABLE orders.process (
    owner TEXT NOT NULL,
    beat_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    free INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT pk_process PRIMARY KEY (owner)
);
COMMENT ON COLUMN orders.process.free IS 'How many orders more it can work on.';

CREATE TABLE orders.provider_comparison (
    provider TEXT NOT NULL,
    after_s INTEGER NOT NULL,
    compared_until TIMESTAMP WITH TIME ZONE NOT NULL,
    taken_until TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_provider_comparison PRIMARY KEY (provider, after_s)
);
COMMENT ON COLUMN orders.provider_comparison.after_s IS 'So long after a charge was made.';
COMMENT ON COLUMN orders.provider_comparison.taken_until IS 'Until then no other process compares.';

ALTER TABLE orders.refund ADD COLUMN key_hash TEXT, ADD COLUMN fingerprint TEXT;
COMMENT ON COLUMN orders.refund.key_hash IS 'Hash of the idempotency key of the request, in hexadecimal.';
COMMENT ON COLUMN orders.refund.fingerprint IS 'Hash of the request; another one with this key is refused.';

-- What an order holds, as rows. The place of a part is its number.
CREATE VIEW orders.order_line AS
SELECT o.reference, l.line_no::integer AS line_no, l.line ->> 'section_id' AS section_id, l.line ->> 'seat_id' AS seat_id,
    jsonb_array_length(l.line -> 'tickets') AS quantity, (l.line ->> 'unit_price_minor')::bigint AS unit_price_minor,
    coalesce((l.line ->> 'returned')::integer, 0) AS returned, (l.line ->> 'paid_minor')::bigint AS paid_minor
FROM orders."order" o CROSS JOIN LATERAL jsonb_array_elements(o.lines) WITH ORDINALITY AS l(line, line_no);

CREATE VIEW orders.ticket AS
SELECT o.reference, l.line_no::integer AS line_no, t.n::integer AS n, o.event_id, t.ticket ->> 'id' AS ticket_id,
    o.fulfilled_at AS issued_at, to_timestamp((t.ticket ->> 'void_at_ms')::bigint / 1000.0) AS void_at,
    t.ticket ->> 'void_reason' AS void_reason, l.line ->> 'section_id' AS section_id, l.line ->> 'seat_id' AS seat_id
FROM orders."order" o CROSS JOIN LATERAL jsonb_array_elements(o.lines) WITH ORDINALITY AS l(line, line_no)
CROSS JOIN LATERAL jsonb_array_elements(l.line -> 'tickets') WITH ORDINALITY AS t(ticket, n)
WHERE o.fulfilled_at IS NOT NULL;

CREATE VIEW orders.order_adjustment AS
SELECT o.reference, e.line_no::integer AS line_no, e.extra ->> 'kind' AS kind, e.extra ->> 'name' AS name,
    e.extra ->> 'percent' AS percent, (e.extra ->> 'amount_minor')::bigint AS amount_minor,
    (e.extra ->> 'included')::boolean AS included
FROM orders."order" o CROSS JOIN LATERAL jsonb_array_elements(o.extras) WITH ORDINALITY AS e(extra, line_no);

CREATE VIEW orders.payment_attempt AS
SELECT o.reference, a.n::integer AS n, a.attempt ->> 'provider' AS provider, a.attempt ->> 'method' AS method,
    a.attempt ->> 'token' AS token, a.attempt ->> 'return_url' AS return_url, o.total_minor AS amount_minor, o.currency,
    concat_ws(':', o.reference, a.n::text) AS provider_key, a.attempt ->> 'provider_ref' AS provider_ref,
    a.attempt ->> 'status' AS status, a.attempt ->> 'checkout_url' AS checkout_url, a.attempt ->> 'reason' AS reason,
    coalesce((a.attempt ->> 'errors')::integer, 0) AS errors, coalesce((a.attempt ->> 'capture')::boolean, true) AS capture,
    to_timestamp((a.attempt ->> 'created_at_ms')::bigint / 1000.0) AS created_at,
    to_timestamp((a.attempt ->> 'changed_at_ms')::bigint / 1000.0) AS changed_at
FROM orders."order" o CROSS JOIN LATERAL jsonb_array_elements(o.attempts) WITH ORDINALITY AS a(attempt, n);

CREATE VIEW orders.checkout_command AS
SELECT (rpad(encode(convert_to(o.reference, 'UTF8'), 'hex'), 24, '0') || lpad(to_hex(c.place), 8, '0'))::uuid AS command_id,
    o.reference, o.event_id, c.place::integer AS place, c.command ->> 'type' AS command_type, c.command ->> 'by' AS caused_by,
    coalesce(c.command -> 'payload', '{}') AS payload, c.command ->> 'status' AS status,
    (c.command ->> 'tries')::integer AS attempts,
    to_timestamp((c.command ->> 'at_ms')::bigint / 1000.0) AS created_at,
    to_timestamp((c.command ->> 'done_at_ms')::bigint / 1000.0) AS processed_at, c.command ->> 'error' AS error_message
FROM orders."order" o CROSS JOIN LATERAL jsonb_array_elements(o.journal) WITH ORDINALITY AS c(command, place);
