ALTER TABLE orders."order" ADD COLUMN unmailed_at TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN orders."order".unmailed_at IS 'When a mail to its buyer was given up; null again once one was sent, or the address changed.';
ALTER TABLE orders."order" ADD COLUMN address_changes INTEGER DEFAULT 0 NOT NULL;
COMMENT ON COLUMN orders."order".address_changes IS 'How often its buyer corrected the e-mail address.';
CREATE INDEX ix_order_unmailed ON orders."order" (created_at, reference) WHERE unmailed_at IS NOT NULL;
ALTER TABLE orders.mail ADD COLUMN budget TEXT;
COMMENT ON COLUMN orders.mail.budget IS 'Against which limit per address it counts: asked (at somebody''s request) or own (of the order, unpaid); null: none.';
CREATE INDEX ix_mail_unsent ON orders.mail (reference) WHERE sent_at IS NULL AND abandoned_at IS NULL;
CREATE TABLE orders.mail_recipient (
    recipient TEXT NOT NULL,
    day DATE NOT NULL,
    mails INTEGER NOT NULL,
    CONSTRAINT pk_mail_recipient PRIMARY KEY (recipient, day)
);
CREATE INDEX ix_mail_recipient_day ON orders.mail_recipient (day);
