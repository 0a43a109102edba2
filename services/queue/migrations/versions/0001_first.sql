CREATE TABLE queue.admission (
    event_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    lane SMALLINT NOT NULL,
    join_seq BIGINT NOT NULL,
    call INTEGER NOT NULL,
    state TEXT NOT NULL,
    deadline_ms BIGINT,
    jti TEXT,
    expires_at_ms BIGINT,
    extended BOOLEAN DEFAULT false NOT NULL,
    called_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_admission PRIMARY KEY (event_id, epoch, lane, join_seq, call),
    CONSTRAINT ck_admission_state CHECK (state IN ('called', 'claimed', 'missed', 'ended')),
    CONSTRAINT ck_admission_claimed_pass CHECK (state <> 'claimed' OR (jti IS NOT NULL AND expires_at_ms IS NOT NULL))
);
CREATE INDEX ix_admission_open ON queue.admission (event_id, epoch, lane, join_seq)
    WHERE state IN ('called', 'claimed');

CREATE TABLE queue.access_code (
    event_id TEXT NOT NULL,
    code_hash BYTEA NOT NULL,
    lane SMALLINT NOT NULL,
    uses_max INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    uses INTEGER NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    revoked_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_access_code PRIMARY KEY (event_id, code_hash),
    CONSTRAINT ck_access_code_uses CHECK (uses BETWEEN 0 AND uses_max)
);
CREATE INDEX ix_access_code_created_at ON queue.access_code (event_id, created_at, code_hash);
CREATE INDEX ix_access_code_lane ON queue.access_code (event_id, lane, created_at, code_hash);

CREATE TABLE queue.access_code_use (
    event_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    code_hash BYTEA NOT NULL,
    holder TEXT NOT NULL,
    lane SMALLINT NOT NULL,
    join_seq BIGINT NOT NULL,
    CONSTRAINT pk_access_code_use PRIMARY KEY (event_id, epoch, code_hash, holder)
);

CREATE TABLE queue.lane (
    event_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    lane SMALLINT NOT NULL,
    head_seq BIGINT NOT NULL,
    calls BIGINT DEFAULT 0 NOT NULL,
    contended_calls BIGINT DEFAULT 0 NOT NULL,
    fair_share DOUBLE PRECISION DEFAULT 0 NOT NULL,
    contention_periods BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT pk_lane PRIMARY KEY (event_id, epoch, lane)
);

CREATE TABLE queue.log_offset (
    stream TEXT NOT NULL,
    last_id TEXT NOT NULL,
    CONSTRAINT pk_log_offset PRIMARY KEY (stream)
);

CREATE TABLE queue.lottery (
    event_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    seed BYTEA NOT NULL,
    blind BYTEA NOT NULL,
    committed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    entrants JSONB,
    counted_at TIMESTAMP WITH TIME ZONE,
    branches JSONB,
    public_value TEXT,
    drawn_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_lottery PRIMARY KEY (event_id, epoch),
    CONSTRAINT ck_lottery_drawn_with_a_value CHECK ((drawn_at IS NULL) = (public_value IS NULL)),
    CONSTRAINT ck_lottery_closed_with_entrants CHECK ((closed_at IS NULL) = (entrants IS NULL)),
    CONSTRAINT ck_lottery_counted_when_closed CHECK (counted_at IS NULL OR closed_at IS NOT NULL),
    CONSTRAINT ck_lottery_drawn_when_counted CHECK (drawn_at IS NULL OR counted_at IS NOT NULL)
);

CREATE TABLE queue.outbox (
    id BIGSERIAL NOT NULL,
    event_id TEXT NOT NULL,
    body JSONB NOT NULL,
    published_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_outbox PRIMARY KEY (id)
);
CREATE INDEX ix_outbox_unpublished ON queue.outbox (id) WHERE published_at IS NULL;

CREATE TABLE queue.outbox_lease (
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    until TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_outbox_lease PRIMARY KEY (name)
);

CREATE TABLE queue.place (
    event_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    lane SMALLINT NOT NULL,
    join_seq BIGINT NOT NULL,
    holder TEXT NOT NULL,
    user_id TEXT,
    joined_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    bought_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    end_reason TEXT,
    CONSTRAINT pk_place PRIMARY KEY (event_id, lane, epoch, join_seq),
    CONSTRAINT ck_place_ended_with_reason CHECK ((ended_at IS NULL) = (end_reason IS NULL)),
    CONSTRAINT ck_place_end_reason CHECK (end_reason IN ('completed', 'expired', 'left'))
);
CREATE INDEX ix_place_user ON queue.place (event_id, epoch, holder) WHERE left(holder, 5) = 'user.';
CREATE UNIQUE INDEX uq_place_live_holder ON queue.place (event_id, epoch, holder) WHERE ended_at IS NULL;

CREATE TABLE queue.room (
    event_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    version BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    redis_instance_id TEXT NOT NULL,
    state TEXT NOT NULL,
    message TEXT,
    queue_opens_at TIMESTAMP WITH TIME ZONE,
    sale_starts_at TIMESTAMP WITH TIME ZONE,
    sale_ends_at TIMESTAMP WITH TIME ZONE,
    ordering TEXT NOT NULL,
    rate_per_s DOUBLE PRECISION NOT NULL,
    burst INTEGER NOT NULL,
    max_active INTEGER NOT NULL,
    session_s INTEGER NOT NULL,
    claim_window_s INTEGER NOT NULL,
    liveness_window_s INTEGER NOT NULL,
    max_misses INTEGER NOT NULL,
    returning_share DOUBLE PRECISION NOT NULL,
    max_line INTEGER,
    tickets_per_order INTEGER NOT NULL,
    stock_coupling BOOLEAN NOT NULL,
    options JSONB DEFAULT '{}' NOT NULL,
    CONSTRAINT pk_room PRIMARY KEY (event_id),
    CONSTRAINT ck_room_state CHECK (state IN ('draft', 'open', 'paused', 'draining', 'closed'))
);

CREATE TABLE queue.admit_key (
    event_id TEXT NOT NULL,
    key_hash BYTEA NOT NULL,
    count INTEGER NOT NULL,
    called INTEGER,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_admit_key PRIMARY KEY (event_id, key_hash)
);
COMMENT ON TABLE queue.admit_key
    IS 'Idempotency keys of manual admissions of the last day; `called` is null until the fans were called.';

CREATE TABLE queue.audit_log (
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
CREATE INDEX ix_audit_log_subject ON queue.audit_log (subject, id);
