-- The uid of the schedule that has started an execution, if one has, so that its open ones are found at once, however many it
-- has started, also one that is open again because it was retried. Written with the row, never changed.
ALTER TABLE executions ADD COLUMN schedule_uid BYTEA;
-- Open executions of a schedule, the oldest first.
CREATE INDEX executions_schedule ON executions (schedule_uid, key) WHERE schedule_uid IS NOT NULL AND close_time IS NULL;
