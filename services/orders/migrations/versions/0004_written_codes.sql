ALTER TABLE orders.promo_code ADD COLUMN written TEXT;
