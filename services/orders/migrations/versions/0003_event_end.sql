ALTER TABLE orders.event ADD COLUMN ends_at TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN orders.event.ends_at IS 'When the show ends, if its event file says so.';
