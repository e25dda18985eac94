-- A paused execution has the state 8. What stands in the table satisfied the narrower rules, so it is not looked through.
ALTER TABLE executions DROP CONSTRAINT executions_state_is_known;
ALTER TABLE executions DROP CONSTRAINT executions_closed_has_time;
ALTER TABLE executions ADD CONSTRAINT executions_state_is_known CHECK (state BETWEEN 1 AND 8) NOT VALID;
ALTER TABLE executions ADD CONSTRAINT executions_closed_has_time
    CHECK ((state BETWEEN 3 AND 7) = (close_time IS NOT NULL)) NOT VALID;

-- The newest run. And when the deletion began: from then on the row stands only for what is still to be removed, and nothing
-- but the loop that removes it finds it.
ALTER TABLE executions ADD COLUMN run BIGINT NOT NULL DEFAULT 1;
ALTER TABLE executions ADD COLUMN delete_time BIGINT;
-- What is closed, the longest first: what retention deletes.
CREATE INDEX executions_close ON executions (close_time, key)
    WHERE close_time IS NOT NULL AND delete_time IS NULL AND quarantined IS NULL;
-- What is to be removed.
CREATE INDEX executions_delete ON executions (delete_time, key) WHERE delete_time IS NOT NULL;

-- One row a run but the first, until all that is before it has been trimmed. Written by the committers, read to find where
-- the newest run begins, and by retention. Events can rebuild it.
CREATE TABLE runs (
    execution_key  BIGINT  NOT NULL,
    run            BIGINT  NOT NULL,
    first_seq      BIGINT  NOT NULL,
    start_time     BIGINT  NOT NULL,
    CONSTRAINT runs_once PRIMARY KEY (execution_key, run),
    CONSTRAINT runs_are_later_ones CHECK (run >= 2 AND first_seq >= 2)
);
-- Which runs ended long ago: each ended when the next one began.
CREATE INDEX runs_start ON runs (start_time, execution_key, run);
