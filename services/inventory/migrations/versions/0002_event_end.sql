ALTER TABLE inventory.event ADD COLUMN ends_at TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN inventory.event.ends_at IS 'When the show ends, if its event file says so.';
