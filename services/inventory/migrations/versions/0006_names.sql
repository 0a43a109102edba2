ALTER TABLE inventory.event
    ADD COLUMN names TEXT DEFAULT 'none' NOT NULL,
    ADD COLUMN names_until TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN inventory.event.names
    IS 'Names that orders bring: none, the buyer''s (order), or one for each ticket (ticket).';
COMMENT ON COLUMN inventory.event.names_until
    IS 'Until when buyers may change names; null: until it starts.';
