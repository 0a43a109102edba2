CREATE TABLE console.approval (
    id TEXT NOT NULL,
    event_id TEXT NOT NULL,
    control TEXT NOT NULL,
    body TEXT NOT NULL,
    idempotency_key TEXT,
    if_match TEXT,
    requested_by TEXT NOT NULL,
    requester_fingerprint TEXT NOT NULL,
    status TEXT NOT NULL,
    decided_by TEXT,
    token TEXT,
    created_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL,
    CONSTRAINT pk_approval PRIMARY KEY (id),
    CONSTRAINT ck_approval_status CHECK (status IN ('pending', 'approved', 'refused'))
);
CREATE INDEX ix_approval_event ON console.approval (event_id, expires_ms);
COMMENT ON TABLE console.approval IS 'Requests for a second person''s approval: deleted when they have expired.';
