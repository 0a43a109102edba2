CREATE TABLE console.used_link (
    digest TEXT NOT NULL,
    used_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now(),
    CONSTRAINT pk_used_link PRIMARY KEY (digest)
);
COMMENT ON TABLE console.used_link IS 'One-time links that were used, so that none works again.';
