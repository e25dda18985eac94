-- History lies in the order in which it is written, not by execution: executions that run at the same time add to the same
-- last pages of the table, and a commit writes a few pages instead of one for each execution that it is of.

-- One row a commit of an execution. Written by the committer, never changed. The truth. The unique key is the only lock.
CREATE TABLE history_log (
    execution_key  INTEGER NOT NULL,
    first_seq      INTEGER NOT NULL,
    last_seq       INTEGER NOT NULL,
    run            INTEGER NOT NULL,
    batch_id       BLOB    NOT NULL,
    format         INTEGER NOT NULL,
    events         BLOB    NOT NULL,
    CONSTRAINT history_is_numbered CHECK (first_seq >= 1 AND last_seq >= first_seq)
) STRICT;
INSERT INTO history_log (execution_key, first_seq, last_seq, run, batch_id, format, events)
SELECT execution_key, first_seq, last_seq, run, batch_id, format, events FROM history ORDER BY execution_key, first_seq;
DROP TABLE history;
ALTER TABLE history_log RENAME TO history;
CREATE UNIQUE INDEX history_fence ON history (execution_key, first_seq);
