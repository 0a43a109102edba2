CREATE INDEX ix_admission_called ON queue.admission (event_id, epoch, called_at) WHERE call > 0;
CREATE INDEX ix_place_bought ON queue.place (event_id, epoch) WHERE bought_at IS NOT NULL AND ended_at IS NULL;
DROP INDEX queue.ix_admission_open;
