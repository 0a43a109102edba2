-- The wider check reads the money ledger once, a second for some million entries.
ALTER TABLE orders."order" ADD COLUMN dispute TEXT;
COMMENT ON COLUMN orders."order".dispute IS 'The dispute of its charge as the provider last reported it: open, won or lost.';
ALTER TABLE orders.money_entry DROP CONSTRAINT ck_money_entry_kind,
    ADD CONSTRAINT ck_money_entry_kind CHECK (kind IN ('charge', 'refund', 'dispute', 'reinstatement'));
