ALTER TABLE orders."order" ADD COLUMN routine BOOLEAN DEFAULT false NOT NULL;
COMMENT ON COLUMN orders."order".routine IS 'Due only to be compared with the provider again: nobody waits for it.';
CREATE INDEX ix_order_awaited ON orders."order" (event_id, due_at) WHERE due_at IS NOT NULL AND NOT routine;
