CREATE TABLE inventory.allotment (
    event_id TEXT NOT NULL,
    allotment_id TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    places JSONB NOT NULL,
    opens_at_ms BIGINT,
    opened_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_allotment PRIMARY KEY (event_id, allotment_id)
);
CREATE INDEX ix_allotment_due ON inventory.allotment (opens_at_ms) WHERE opened_at IS NULL;
COMMENT ON COLUMN inventory.allotment.places IS 'As given by the operator: seats, rows and GA places.';

CREATE TABLE inventory.allotment_ga (
    event_id TEXT NOT NULL,
    allotment_id TEXT NOT NULL,
    section_id TEXT NOT NULL,
    allotted INTEGER NOT NULL,
    CONSTRAINT pk_allotment_ga PRIMARY KEY (event_id, allotment_id, section_id),
    CONSTRAINT ck_allotment_ga_never_released_twice CHECK (allotted >= 0)
);
COMMENT ON COLUMN inventory.allotment_ga.allotted IS 'Places still allotted; they are part of the section''s blocked places.';

CREATE TABLE inventory.customer_usage (
    event_id TEXT NOT NULL,
    customer_key TEXT NOT NULL,
    payments_begun BIGINT DEFAULT '0' NOT NULL,
    CONSTRAINT pk_customer_usage PRIMARY KEY (event_id, customer_key)
);
COMMENT ON TABLE inventory.customer_usage
    IS 'Locked while a customer''s tickets are counted, so that one customer''s payments are serialised.';

CREATE TABLE inventory.drift (
    id BIGSERIAL NOT NULL,
    event_id TEXT NOT NULL,
    item TEXT NOT NULL,
    actual TEXT NOT NULL,
    expected TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    action TEXT NOT NULL,
    acted_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_drift PRIMARY KEY (id)
);
CREATE INDEX ix_drift_event ON inventory.drift (event_id, id);

CREATE TABLE inventory.event (
    event_id TEXT NOT NULL,
    name TEXT NOT NULL,
    venue TEXT NOT NULL,
    currency TEXT NOT NULL,
    starts_at TIMESTAMP WITH TIME ZONE NOT NULL,
    timezone TEXT DEFAULT 'UTC' NOT NULL,
    hold_ttl_s INTEGER NOT NULL,
    pay_ttl_s INTEGER NOT NULL,
    grace_s INTEGER NOT NULL,
    tickets_per_order INTEGER NOT NULL,
    tickets_per_customer INTEGER NOT NULL,
    active_reservations_per_customer INTEGER NOT NULL,
    open_orders_per_customer INTEGER NOT NULL,
    tour_id TEXT,
    tour_tickets_per_customer INTEGER DEFAULT '0' NOT NULL,
    avoid_single_seats BOOLEAN DEFAULT true NOT NULL,
    hold_ttl_b_s INTEGER,
    hold_ttl_b_percent FLOAT DEFAULT '0' NOT NULL,
    oversell JSONB DEFAULT '{"policy": "honour", "review_percent": 5.0}' NOT NULL,
    hall_map JSONB,
    brand JSONB,
    redis_epoch BIGINT DEFAULT '0' NOT NULL,
    version BIGINT DEFAULT '1' NOT NULL,
    min_pass_epoch INTEGER DEFAULT '0' NOT NULL,
    rehearsal BOOLEAN DEFAULT false NOT NULL,
    CONSTRAINT pk_event PRIMARY KEY (event_id)
);
CREATE INDEX ix_event_tour ON inventory.event (tour_id) WHERE tour_id IS NOT NULL;
COMMENT ON COLUMN inventory.event.brand IS 'The brand of the event file; null if it has none.';
COMMENT ON COLUMN inventory.event.hall_map IS 'The map of the event file; null if it has none.';
COMMENT ON COLUMN inventory.event.tour_tickets_per_customer IS 'Limit over all events of the tour.';

CREATE TABLE inventory.outbox (
    id BIGSERIAL NOT NULL,
    event_id TEXT NOT NULL,
    body JSONB NOT NULL,
    published_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_outbox PRIMARY KEY (id)
);
CREATE INDEX ix_outbox_unpublished ON inventory.outbox (id) WHERE published_at IS NULL;

CREATE TABLE inventory.outbox_lease (
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    until TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_outbox_lease PRIMARY KEY (name)
);

CREATE TABLE inventory.oversell (
    id BIGSERIAL NOT NULL,
    event_id TEXT NOT NULL,
    section_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    excess INTEGER NOT NULL,
    percent DOUBLE PRECISION NOT NULL,
    policy TEXT NOT NULL,
    status TEXT NOT NULL,
    from_buffer INTEGER DEFAULT '0' NOT NULL,
    overbooked INTEGER DEFAULT '0' NOT NULL,
    found_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    decided_by TEXT,
    reason TEXT,
    ended_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_oversell PRIMARY KEY (id),
    CONSTRAINT ck_oversell_status CHECK (status IN ('waiting', 'cancelling', 'cancelled', 'honoured', 'gone'))
);
CREATE UNIQUE INDEX uq_oversell_open ON inventory.oversell (event_id, section_id, position)
    WHERE status IN ('waiting', 'cancelling');
COMMENT ON COLUMN inventory.oversell.position IS 'Position of a seat that was sold twice; -1 for an oversold section.';

CREATE TABLE inventory.oversell_return (
    event_id TEXT NOT NULL,
    reservation_id TEXT NOT NULL,
    oversell_id BIGINT NOT NULL,
    order_reference TEXT NOT NULL,
    returned_at TIMESTAMP WITH TIME ZONE,
    refund TEXT,
    refunded_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_oversell_return PRIMARY KEY (event_id, reservation_id)
);
CREATE INDEX ix_oversell_return_due ON inventory.oversell_return (event_id) WHERE refunded_at IS NULL;
COMMENT ON TABLE inventory.oversell_return
    IS 'Buyers who lose their tickets; each step of return and refund is recorded here and may be repeated.';
COMMENT ON COLUMN inventory.oversell_return.refund IS 'The answer of orders.';

CREATE TABLE inventory.picture (
    event_id TEXT NOT NULL,
    name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    digest TEXT NOT NULL,
    content BYTEA NOT NULL,
    CONSTRAINT pk_picture PRIMARY KEY (event_id, name)
);
COMMENT ON COLUMN inventory.picture.digest IS 'Of the content; names it in addresses.';

CREATE TABLE inventory.release_log (
    id BIGSERIAL NOT NULL,
    event_id TEXT NOT NULL,
    reservation_id TEXT NOT NULL,
    section_id TEXT,
    positions INTEGER[] NOT NULL,
    ga_quantity INTEGER NOT NULL,
    reason TEXT NOT NULL,
    late_ms BIGINT NOT NULL,
    released_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_release_log PRIMARY KEY (id)
);
CREATE INDEX ix_release_log_event ON inventory.release_log (event_id, id);

CREATE TABLE inventory.reservation (
    event_id TEXT NOT NULL,
    reservation_id TEXT NOT NULL,
    holder TEXT NOT NULL,
    email TEXT,
    lane INTEGER DEFAULT '0' NOT NULL,
    join_seq BIGINT DEFAULT '0' NOT NULL,
    total_minor BIGINT NOT NULL,
    currency TEXT NOT NULL,
    status TEXT NOT NULL,
    order_reference TEXT,
    customer_key TEXT,
    reserved_until_ms BIGINT NOT NULL,
    extended BOOLEAN DEFAULT false NOT NULL,
    payment_extended BOOLEAN DEFAULT false NOT NULL,
    fingerprint TEXT NOT NULL,
    hold_ttl_s INTEGER,
    variant TEXT,
    reminders_requested BOOLEAN DEFAULT false NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    released_tickets INTEGER DEFAULT '0' NOT NULL,
    payment_begun_at TIMESTAMP WITH TIME ZONE,
    confirmed_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    version BIGINT DEFAULT '1' NOT NULL,
    CONSTRAINT pk_reservation PRIMARY KEY (event_id, reservation_id),
    CONSTRAINT uq_reservation_reservation_id UNIQUE (reservation_id)
);
CREATE INDEX ix_reservation_customer ON inventory.reservation (event_id, customer_key) WHERE customer_key IS NOT NULL;
CREATE INDEX ix_reservation_due ON inventory.reservation (reserved_until_ms, event_id)
    WHERE status IN ('pending_payment', 'paying');
CREATE INDEX ix_reservation_live_holder ON inventory.reservation (event_id, holder)
    WHERE status IN ('pending_payment', 'paying');
CREATE INDEX ix_reservation_reminders ON inventory.reservation (reservation_id) WHERE reminders_requested;
COMMENT ON COLUMN inventory.reservation.variant IS 'Variant of the experiment with two hold_ttl_s: a or b.';
COMMENT ON COLUMN inventory.reservation.reminders_requested IS 'Consent to reminders that orders has not acknowledged.';
COMMENT ON COLUMN inventory.reservation.released_tickets IS 'Tickets that the fan released before a payment.';
COMMENT ON COLUMN inventory.reservation.payment_begun_at IS 'When the first payment began.';
COMMENT ON COLUMN inventory.reservation.ended_at IS 'When it ended without a sale.';

CREATE TABLE inventory.reservation_ga (
    event_id TEXT NOT NULL,
    reservation_id TEXT NOT NULL,
    section_id TEXT NOT NULL,
    quantity INTEGER NOT NULL,
    unit_price_minor BIGINT NOT NULL,
    CONSTRAINT pk_reservation_ga PRIMARY KEY (event_id, reservation_id, section_id),
    CONSTRAINT ck_reservation_ga_some CHECK (quantity > 0)
);

CREATE TABLE inventory.reservation_seat (
    event_id TEXT NOT NULL,
    reservation_id TEXT NOT NULL,
    section_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    unit_price_minor BIGINT NOT NULL,
    CONSTRAINT pk_reservation_seat PRIMARY KEY (event_id, reservation_id, section_id, position)
);

CREATE TABLE inventory.revoked_pass (
    event_id TEXT NOT NULL,
    jti TEXT NOT NULL,
    expires_at_ms BIGINT NOT NULL,
    CONSTRAINT pk_revoked_pass PRIMARY KEY (event_id, jti)
);

CREATE TABLE inventory.seat (
    event_id TEXT NOT NULL,
    section_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    row TEXT NOT NULL,
    number INTEGER NOT NULL,
    status TEXT DEFAULT 'available' NOT NULL,
    reservation_id TEXT,
    allotment_id TEXT,
    CONSTRAINT pk_seat PRIMARY KEY (event_id, section_id, position),
    CONSTRAINT ck_seat_owned_while_held_or_sold CHECK ((status IN ('held', 'sold')) = (reservation_id IS NOT NULL)),
    CONSTRAINT ck_seat_allotted_is_blocked CHECK (allotment_id IS NULL OR status = 'blocked')
) WITH (fillfactor = 50);
COMMENT ON COLUMN inventory.seat.allotment_id IS 'The allotment of a blocked seat; null if it is blocked manually.';

CREATE TABLE inventory.section (
    event_id TEXT NOT NULL,
    section_id TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    rows INTEGER NOT NULL,
    seats_per_row INTEGER NOT NULL,
    capacity INTEGER NOT NULL,
    seats_remaining INTEGER NOT NULL,
    blocked INTEGER DEFAULT '0' NOT NULL,
    overbooked_accepted INTEGER DEFAULT '0' NOT NULL,
    price_minor INTEGER NOT NULL,
    fee_minor INTEGER NOT NULL,
    price_levels JSONB DEFAULT '[]' NOT NULL,
    version BIGINT DEFAULT '1' NOT NULL,
    CONSTRAINT pk_section PRIMARY KEY (event_id, section_id),
    CONSTRAINT ck_section_never_oversold CHECK (seats_remaining >= 0),
    CONSTRAINT ck_section_never_more_than_there_is CHECK (seats_remaining <= capacity),
    CONSTRAINT ck_section_never_opened_twice CHECK (blocked >= 0)
) WITH (fillfactor = 50);
COMMENT ON COLUMN inventory.section.blocked IS 'Places not on sale: blocked manually or allotted.';
COMMENT ON COLUMN inventory.section.overbooked_accepted IS 'Places sold beyond the capacity and accepted by the oversell policy.';

CREATE TABLE inventory.audit_log (
    id BIGSERIAL NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
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
CREATE INDEX ix_audit_log_subject ON inventory.audit_log (subject, id);

CREATE TABLE inventory.ticket_return (
    event_id TEXT NOT NULL,
    return_id TEXT NOT NULL,
    reservation_id TEXT NOT NULL,
    places JSONB NOT NULL,
    kept_blocked BOOLEAN NOT NULL,
    reason TEXT NOT NULL,
    returned_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_ticket_return PRIMARY KEY (event_id, return_id)
);
