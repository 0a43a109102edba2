ALTER TABLE inventory.event ADD COLUMN single_seats TEXT DEFAULT 'tell' NOT NULL;
