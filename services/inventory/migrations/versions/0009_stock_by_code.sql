ALTER TABLE inventory.allotment
    ADD COLUMN codes JSONB DEFAULT '[]' NOT NULL,
    ADD COLUMN lanes JSONB DEFAULT '[]' NOT NULL,
    ADD COLUMN sold_before INTEGER DEFAULT 0 NOT NULL;
ALTER TABLE inventory.seat DROP CONSTRAINT ck_seat_allotted_is_blocked;
COMMENT ON COLUMN inventory.seat.allotment_id IS 'The allotment that has the seat, until it opens; null: none.';
CREATE INDEX ix_seat_allotted ON inventory.seat (event_id, allotment_id) WHERE allotment_id IS NOT NULL;
