CREATE TABLE orders.checkout_command (
    command_id UUID DEFAULT gen_random_uuid() NOT NULL,
    reference TEXT NOT NULL,
    command_type TEXT NOT NULL,
    caused_by TEXT DEFAULT 'system' NOT NULL,
    payload JSONB DEFAULT '{}'::jsonb NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    processed_at TIMESTAMP WITH TIME ZONE,
    error_message TEXT,
    CONSTRAINT pk_checkout_command PRIMARY KEY (command_id)
);
CREATE INDEX ix_checkout_command_created_at ON orders.checkout_command (created_at);
CREATE INDEX ix_checkout_command_error ON orders.checkout_command (created_at) WHERE error_message IS NOT NULL;
CREATE INDEX ix_checkout_command_reference ON orders.checkout_command (reference);

CREATE TABLE orders.background_share (
    event_id TEXT NOT NULL,
    background_percent FLOAT NOT NULL CONSTRAINT ck_background_share_percent CHECK (background_percent BETWEEN 0 AND 100),
    changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_background_share PRIMARY KEY (event_id)
);

CREATE TABLE orders.event (
    event_id TEXT NOT NULL,
    name TEXT NOT NULL,
    venue TEXT NOT NULL,
    starts_at TIMESTAMP WITH TIME ZONE NOT NULL,
    timezone TEXT DEFAULT 'UTC' NOT NULL,
    currency TEXT NOT NULL,
    section_names JSONB NOT NULL,
    rehearsal BOOLEAN DEFAULT false NOT NULL,
    applied_by TEXT NOT NULL,
    applied_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_event PRIMARY KEY (event_id)
);

CREATE TABLE orders.event_price (
    event_id TEXT NOT NULL,
    currency TEXT NOT NULL,
    section_ids JSONB NOT NULL,
    rules JSONB NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_event_price PRIMARY KEY (event_id)
);

CREATE TABLE orders.event_refund (
    id BIGSERIAL NOT NULL,
    event_id TEXT NOT NULL,
    status TEXT NOT NULL CONSTRAINT ck_event_refund_status CHECK (status IN ('running', 'paused', 'done')),
    reason TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    role TEXT NOT NULL,
    return_to_sale BOOLEAN NOT NULL,
    rate_per_s DOUBLE PRECISION NOT NULL CONSTRAINT ck_event_refund_rate CHECK (rate_per_s > 0),
    paced_until TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    after_reference TEXT,
    refunds INTEGER DEFAULT '0' NOT NULL,
    cancelled INTEGER DEFAULT '0' NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_event_refund PRIMARY KEY (id)
);
CREATE INDEX ix_event_refund_event_id ON orders.event_refund (event_id, id);
CREATE UNIQUE INDEX uq_event_refund_open ON orders.event_refund (event_id) WHERE status <> 'done';
COMMENT ON COLUMN orders.event_refund.paced_until IS 'The time up to which the pace is used.';
COMMENT ON COLUMN orders.event_refund.after_reference
    IS 'The last order of the pass so far; null at its start.';

CREATE TABLE orders.webhook_endpoint (
    endpoint_id TEXT NOT NULL,
    url TEXT NOT NULL,
    secret TEXT NOT NULL,
    kinds TEXT[] NOT NULL,
    event_id TEXT,
    description TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    failing_since TIMESTAMP WITH TIME ZONE,
    disabled_at TIMESTAMP WITH TIME ZONE,
    disabled_reason TEXT,
    CONSTRAINT pk_webhook_endpoint PRIMARY KEY (endpoint_id)
);

CREATE TABLE orders.webhook_delivery (
    id BIGSERIAL NOT NULL,
    endpoint_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    event_id TEXT NOT NULL,
    reference TEXT NOT NULL,
    body TEXT NOT NULL,
    status TEXT DEFAULT 'pending' NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now(),
    lease TEXT,
    lease_until TIMESTAMP WITH TIME ZONE,
    delivered_at TIMESTAMP WITH TIME ZONE,
    answer_status INTEGER,
    error TEXT,
    CONSTRAINT pk_webhook_delivery PRIMARY KEY (id),
    CONSTRAINT uq_webhook_delivery_endpoint_id_message_id UNIQUE (endpoint_id, message_id)
);
CREATE INDEX ix_webhook_delivery_due ON orders.webhook_delivery (endpoint_id, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX ix_webhook_delivery_endpoint_id ON orders.webhook_delivery (endpoint_id, id);
CREATE INDEX ix_webhook_delivery_leased ON orders.webhook_delivery (endpoint_id) WHERE lease IS NOT NULL;

CREATE TABLE orders.idempotency (
    scope TEXT NOT NULL,
    key_hash BYTEA NOT NULL,
    fingerprint BYTEA NOT NULL,
    reference TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_idempotency PRIMARY KEY (scope, key_hash)
);

CREATE TABLE orders.mail_opt_out (
    customer TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_mail_opt_out PRIMARY KEY (customer)
);

CREATE TABLE orders.audit_log (
    id BIGSERIAL NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    actor TEXT NOT NULL,
    role TEXT,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    reason TEXT,
    version BIGINT,
    before JSONB,
    after JSONB,
    CONSTRAINT pk_audit_log PRIMARY KEY (id)
);
CREATE INDEX ix_audit_log_subject ON orders.audit_log (subject, id);

CREATE TABLE orders."order" (
    reference TEXT NOT NULL,
    status TEXT NOT NULL,
    event_id TEXT,
    reservation_id TEXT,
    owner_id TEXT,
    lane INTEGER DEFAULT '0' NOT NULL,
    join_seq BIGINT DEFAULT '0' NOT NULL,
    total_minor BIGINT,
    currency TEXT,
    customer_name TEXT,
    customer_email TEXT,
    customer_phone TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    extended_at TIMESTAMP WITH TIME ZONE,
    grace_s INTEGER DEFAULT '0' NOT NULL,
    confirmed_at TIMESTAMP WITH TIME ZONE,
    fulfilled_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    end_reason TEXT,
    cancel_requested_at TIMESTAMP WITH TIME ZONE,
    released_at TIMESTAMP WITH TIME ZONE,
    charge_ref TEXT,
    review_decision TEXT,
    version BIGINT DEFAULT '0' NOT NULL,
    wake_count BIGINT DEFAULT '0' NOT NULL,
    sync_requested BOOLEAN DEFAULT false NOT NULL,
    errors INTEGER DEFAULT '0' NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE,
    lease TEXT,
    lease_until TIMESTAMP WITH TIME ZONE,
    traceparent TEXT,
    CONSTRAINT pk_order PRIMARY KEY (reference),
    CONSTRAINT ck_order_complete CHECK (status = 'tombstone' OR (event_id IS NOT NULL AND reservation_id IS NOT NULL
        AND owner_id IS NOT NULL AND total_minor >= 0 AND currency IS NOT NULL AND expires_at
        IS NOT NULL))
);
CREATE INDEX ix_order_changed_at ON orders."order" USING brin (changed_at);
CREATE INDEX ix_order_created_at ON orders."order" (created_at);
CREATE INDEX ix_order_due ON orders."order" (event_id, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX ix_order_event ON orders."order" (event_id, created_at, reference);
CREATE INDEX ix_order_leased ON orders."order" (event_id) WHERE lease IS NOT NULL;
CREATE INDEX ix_order_owner_id ON orders."order" (owner_id, created_at);
CREATE INDEX ix_order_user ON orders."order" (split_part(owner_id, ':', 2), created_at)
    WHERE left(split_part(owner_id, ':', 2), 5) = 'user.';
CREATE UNIQUE INDEX uq_order_reservation_id ON orders."order" (reservation_id) WHERE status <> 'tombstone';
COMMENT ON COLUMN orders."order".extended_at IS 'When its buyer was given more time to pay; possible once.';
COMMENT ON COLUMN orders."order".traceparent IS 'The trace that its steps continue; null unless its checkout was traced.';
COMMENT ON COLUMN orders."order".review_decision IS 'Decision of an operator about an order in review: confirm, refund or expire.';

CREATE TABLE orders.order_adjustment (
    reference TEXT NOT NULL,
    line_no INTEGER NOT NULL,
    kind TEXT NOT NULL CONSTRAINT ck_order_adjustment_kind CHECK (kind IN ('discount', 'fee', 'tax')),
    name TEXT NOT NULL,
    percent TEXT,
    amount_minor BIGINT NOT NULL,
    included BOOLEAN NOT NULL,
    CONSTRAINT pk_order_adjustment PRIMARY KEY (reference, line_no)
);

CREATE TABLE orders.order_line (
    reference TEXT NOT NULL,
    line_no INTEGER NOT NULL,
    section_id TEXT NOT NULL,
    seat_id TEXT,
    quantity INTEGER NOT NULL CONSTRAINT ck_order_line_quantity CHECK (quantity > 0),
    unit_price_minor BIGINT NOT NULL,
    returned INTEGER DEFAULT '0' NOT NULL,
    paid_minor BIGINT,
    CONSTRAINT pk_order_line PRIMARY KEY (reference, line_no),
    CONSTRAINT ck_order_line_returned CHECK (returned BETWEEN 0 AND quantity)
);
COMMENT ON COLUMN orders.order_line.returned IS 'Refunded, or being refunded.';

CREATE TABLE orders.outbox (
    id BIGSERIAL NOT NULL,
    event_id TEXT NOT NULL,
    body JSONB NOT NULL,
    published_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_outbox PRIMARY KEY (id)
);
CREATE INDEX ix_outbox_unpublished ON orders.outbox (id) WHERE published_at IS NULL;

CREATE TABLE orders.outbox_lease (
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    until TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_outbox_lease PRIMARY KEY (name)
);

CREATE TABLE orders.payment_attempt (
    reference TEXT NOT NULL,
    n INTEGER NOT NULL,
    provider TEXT NOT NULL,
    method TEXT NOT NULL,
    token TEXT,
    return_url TEXT,
    amount_minor BIGINT NOT NULL,
    currency TEXT NOT NULL,
    provider_key TEXT NOT NULL,
    provider_ref TEXT,
    status TEXT NOT NULL,
    checkout_url TEXT,
    reason TEXT,
    errors INTEGER DEFAULT '0' NOT NULL,
    capture BOOLEAN DEFAULT true NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_payment_attempt PRIMARY KEY (reference, n),
    CONSTRAINT uq_payment_attempt_provider_provider_ref UNIQUE (provider, provider_ref),
    CONSTRAINT uq_payment_attempt_provider_key UNIQUE (provider_key)
);
CREATE UNIQUE INDEX uq_payment_attempt_live ON orders.payment_attempt (reference)
    WHERE status IN ('created', 'unknown', 'requires_action', 'processing', 'authorised');
CREATE INDEX ix_payment_attempt_failed ON orders.payment_attempt (reference) WHERE status = 'failed';

CREATE TABLE orders.webhook_inbox (
    provider TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    reference TEXT NOT NULL,
    charge_ref TEXT,
    raw BYTEA NOT NULL,
    received_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    applied_at TIMESTAMP WITH TIME ZONE,
    tries INTEGER DEFAULT '0' NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_webhook_inbox PRIMARY KEY (provider, webhook_id)
);
CREATE INDEX ix_webhook_inbox_due ON orders.webhook_inbox (due_at) WHERE applied_at IS NULL;
CREATE INDEX ix_webhook_inbox_reference ON orders.webhook_inbox (reference);

CREATE TABLE orders.mail (
    mail_key TEXT NOT NULL,
    kind TEXT NOT NULL,
    address TEXT NOT NULL,
    event_id TEXT NOT NULL,
    reference TEXT,
    reservation_id TEXT,
    amount_minor BIGINT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    tries INTEGER DEFAULT '0' NOT NULL,
    error TEXT,
    sent_at TIMESTAMP WITH TIME ZONE,
    abandoned_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_mail PRIMARY KEY (mail_key),
    CONSTRAINT ck_mail_about CHECK ((reference IS NULL) <> (reservation_id IS NULL)),
    CONSTRAINT fk_mail_reference FOREIGN KEY(reference) REFERENCES orders."order" (reference)
);
CREATE INDEX ix_mail_created_at ON orders.mail (created_at);
CREATE INDEX ix_mail_due ON orders.mail (due_at) WHERE sent_at IS NULL AND abandoned_at IS NULL;

CREATE TABLE orders.money_entry (
    id BIGSERIAL NOT NULL,
    reference TEXT NOT NULL,
    kind TEXT NOT NULL CONSTRAINT ck_money_entry_kind CHECK (kind IN ('charge', 'refund')),
    amount_minor BIGINT NOT NULL CONSTRAINT ck_money_entry_amount CHECK (amount_minor > 0),
    currency TEXT NOT NULL,
    provider TEXT NOT NULL,
    provider_ref TEXT NOT NULL,
    charge_ref TEXT NOT NULL,
    occurred_at TIMESTAMP WITH TIME ZONE NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_money_entry PRIMARY KEY (id),
    CONSTRAINT uq_money_entry_provider_provider_ref UNIQUE (provider, provider_ref),
    CONSTRAINT fk_money_entry_reference FOREIGN KEY(reference) REFERENCES orders."order" (reference)
);
CREATE INDEX ix_money_entry_occurred_at ON orders.money_entry USING brin (occurred_at);
CREATE INDEX ix_money_entry_reference ON orders.money_entry (reference);

CREATE TABLE orders.promo_code (
    event_id TEXT NOT NULL,
    code TEXT NOT NULL,
    percent NUMERIC(6, 3),
    amount_minor BIGINT,
    uses_max INTEGER,
    customer_uses_max INTEGER,
    valid_from TIMESTAMP WITH TIME ZONE,
    valid_until TIMESTAMP WITH TIME ZONE,
    section_ids JSONB DEFAULT '[]'::jsonb NOT NULL,
    tickets_min INTEGER DEFAULT '1' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    stopped_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_promo_code PRIMARY KEY (event_id, code),
    CONSTRAINT ck_promo_code_takes_off CHECK (num_nonnulls(percent, amount_minor) = 1),
    CONSTRAINT fk_promo_code_event_id FOREIGN KEY(event_id) REFERENCES orders.event_price (event_id)
);

CREATE TABLE orders.refund (
    id BIGSERIAL NOT NULL,
    reference TEXT NOT NULL,
    provider TEXT NOT NULL,
    charge_ref TEXT NOT NULL,
    amount_minor BIGINT NOT NULL CONSTRAINT ck_refund_amount CHECK (amount_minor >= 0),
    currency TEXT NOT NULL,
    reason TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    idem_key TEXT NOT NULL,
    status TEXT NOT NULL,
    command_id UUID,
    tickets JSONB DEFAULT '[]'::jsonb NOT NULL,
    return_to_sale BOOLEAN DEFAULT false NOT NULL,
    returned TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    done_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_refund PRIMARY KEY (id),
    CONSTRAINT fk_refund_reference FOREIGN KEY(reference) REFERENCES orders."order" (reference),
    CONSTRAINT uq_refund_idem_key UNIQUE (idem_key)
);
CREATE INDEX ix_refund_reference ON orders.refund (reference);
COMMENT ON COLUMN orders.refund.returned IS 'What inventory answered when the tickets were returned to it.';

CREATE TABLE orders.ticket (
    reference TEXT NOT NULL,
    line_no INTEGER NOT NULL,
    n INTEGER NOT NULL CONSTRAINT ck_ticket_n CHECK (n > 0),
    event_id TEXT NOT NULL,
    ticket_id TEXT NOT NULL,
    issued_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    void_at TIMESTAMP WITH TIME ZONE,
    void_reason TEXT,
    CONSTRAINT pk_ticket PRIMARY KEY (reference, line_no, n),
    CONSTRAINT fk_ticket_reference_line_no FOREIGN KEY(reference, line_no)
        REFERENCES orders.order_line (reference, line_no),
    CONSTRAINT uq_ticket_event_id_ticket_id UNIQUE (event_id, ticket_id)
);

CREATE TABLE orders.promo_redemption (
    reference TEXT NOT NULL,
    event_id TEXT NOT NULL,
    code TEXT NOT NULL,
    customer_key TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_promo_redemption PRIMARY KEY (reference),
    CONSTRAINT fk_promo_redemption_event_id_code FOREIGN KEY(event_id, code)
        REFERENCES orders.promo_code (event_id, code),
    CONSTRAINT fk_promo_redemption_reference FOREIGN KEY(reference) REFERENCES orders."order" (reference)
);
CREATE INDEX ix_promo_redemption_created_at ON orders.promo_redemption (event_id, code, created_at, reference);
CREATE INDEX ix_promo_redemption_customer ON orders.promo_redemption (event_id, code, customer_key);

-- Money entries are written once and never changed.
CREATE FUNCTION orders.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'money entries are append-only';
END
$$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON orders.money_entry
FOR EACH STATEMENT EXECUTE FUNCTION orders.refuse_change();

-- Queues the webhook deliveries of every order event in the transaction of the event, whichever statement inserts it.
-- Endpoints of all events get nothing of a rehearsal.
CREATE FUNCTION orders.queue_deliveries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO orders.webhook_delivery (endpoint_id, message_id, kind, event_id, reference, body)
    SELECT h.endpoint_id, 'msg_' || (t.body ->> 'id'), k.kind, t.event_id, t.body #>> '{after,reference}',
        jsonb_build_object(
            'type', k.kind,
            'timestamp', to_char(to_timestamp((t.body ->> 'occurred_at_ms')::bigint / 1000.0) AT TIME ZONE 'UTC',
                'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
            'data', (t.body -> 'after') - 'holder' - 'lane' - 'join_seq'
                || jsonb_build_object('version', t.body -> 'version'))::text
    FROM inserted t
    CROSS JOIN LATERAL (
        SELECT CASE WHEN t.body ->> 'type' = 'order.cancelled' AND t.body #>> '{after,status}' = 'expired'
            THEN 'order.expired' ELSE t.body ->> 'type' END AS kind
    ) k
    JOIN orders.webhook_endpoint h ON h.disabled_at IS NULL AND k.kind = ANY (h.kinds) AND (h.event_id = t.event_id
        OR h.event_id IS NULL AND NOT EXISTS (
            SELECT FROM orders.event e WHERE e.event_id = t.event_id AND e.rehearsal))
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER queue_deliveries AFTER INSERT ON orders.outbox REFERENCING NEW TABLE AS inserted
FOR EACH STATEMENT EXECUTE FUNCTION orders.queue_deliveries();
