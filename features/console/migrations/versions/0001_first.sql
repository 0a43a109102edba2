CREATE TABLE console.sample (
    event_id TEXT NOT NULL,
    at_10s BIGINT NOT NULL,
    values JSONB NOT NULL,
    CONSTRAINT pk_sample PRIMARY KEY (event_id, at_10s)
);
CREATE INDEX ix_sample_at ON console.sample (at_10s);
COMMENT ON TABLE console.sample
    IS 'The figures of an event every ten seconds; at_10s is seconds since the epoch, a multiple of ten.';
