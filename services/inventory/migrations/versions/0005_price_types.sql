ALTER TABLE inventory.event ADD COLUMN price_types JSONB DEFAULT '[]' NOT NULL;
ALTER TABLE inventory.section
    ADD COLUMN prices JSONB DEFAULT '{}' NOT NULL,
    ADD COLUMN traits JSONB DEFAULT '{}' NOT NULL;
ALTER TABLE inventory.reservation_seat ADD COLUMN type_id TEXT DEFAULT '' NOT NULL;
ALTER TABLE inventory.reservation_ga ADD COLUMN type_id TEXT DEFAULT '' NOT NULL;
CREATE UNIQUE INDEX by_type ON inventory.reservation_ga (event_id, reservation_id, section_id, type_id);
ALTER TABLE inventory.reservation_ga
    DROP CONSTRAINT pk_reservation_ga,
    ADD CONSTRAINT pk_reservation_ga PRIMARY KEY USING INDEX by_type;
COMMENT ON COLUMN inventory.event.price_types IS 'As in the event file.';
COMMENT ON COLUMN inventory.section.prices IS 'Prices of price types, by type_id.';
COMMENT ON COLUMN inventory.section.traits IS 'By trait the runs of its seats.';
