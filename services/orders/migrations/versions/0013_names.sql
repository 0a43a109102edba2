ALTER TABLE orders.event
    ADD COLUMN names TEXT DEFAULT 'none' NOT NULL,
    ADD COLUMN names_until TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN orders.event.names
    IS 'Names that orders bring: none, the buyer''s (order), or one for each ticket (ticket).';
COMMENT ON COLUMN orders.event.names_until IS 'Until when buyers may change names; null: until it starts.';
ALTER TABLE orders."order" ADD COLUMN name_changes INTEGER DEFAULT 0 NOT NULL;
COMMENT ON COLUMN orders."order".name_changes IS 'How many names its buyer changed.';
