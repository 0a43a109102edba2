ALTER TABLE inventory.section ADD COLUMN labels JSONB;
COMMENT ON COLUMN inventory.section.labels IS 'Labels of rows and seats as in the event file; null if they are counted.';
ALTER TABLE inventory.seat ADD COLUMN label TEXT;
COMMENT ON COLUMN inventory.seat.label IS 'What stands on the chair; null: its number.';
