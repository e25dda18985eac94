-- A paused execution has the state 8. SQLite cannot change a rule in place, so the table is made anew.
--
-- `run` is the newest run. `delete_time` is when the deletion began: from then on the row stands only for what is still to
-- be removed, and nothing but the loop that removes it finds it.
CREATE TABLE executions_new (
    key              INTEGER PRIMARY KEY AUTOINCREMENT,
    uid              BLOB    NOT NULL,
    namespace        TEXT    NOT NULL,
    id               TEXT    NOT NULL,
    current          INTEGER NOT NULL,
    workflow         TEXT    NOT NULL,
    version          TEXT    NOT NULL,
    definition_hash  BLOB    NOT NULL,
    input_digest     BLOB    NOT NULL,
    request_key      BLOB,
    request_content  BLOB,
    state            INTEGER NOT NULL,
    labels           TEXT    NOT NULL,
    start_time       INTEGER NOT NULL,
    close_time       INTEGER,
    wake_time        INTEGER,
    floor_seq        INTEGER NOT NULL DEFAULT 0,
    quarantined      TEXT,
    run              INTEGER NOT NULL DEFAULT 1,
    delete_time      INTEGER,
    CONSTRAINT executions_current_is_boolean CHECK (current IN (0, 1)),
    CONSTRAINT executions_state_is_known CHECK (state BETWEEN 1 AND 8),
    CONSTRAINT executions_closed_has_time CHECK ((state BETWEEN 3 AND 7) = (close_time IS NOT NULL)),
    CONSTRAINT executions_request_is_whole CHECK ((request_key IS NULL) = (request_content IS NULL))
) STRICT;
INSERT INTO executions_new (key, uid, namespace, id, current, workflow, version, definition_hash, input_digest, request_key,
    request_content, state, labels, start_time, close_time, wake_time, floor_seq, quarantined)
SELECT key, uid, namespace, id, current, workflow, version, definition_hash, input_digest, request_key,
    request_content, state, labels, start_time, close_time, wake_time, floor_seq, quarantined FROM executions ORDER BY key;
-- A key is never used again, also that of a row which has gone.
DELETE FROM sqlite_sequence WHERE name = 'executions_new';
INSERT INTO sqlite_sequence (name, seq) SELECT 'executions_new', seq FROM sqlite_sequence WHERE name = 'executions';
DROP TABLE executions;
ALTER TABLE executions_new RENAME TO executions;

CREATE UNIQUE INDEX executions_uid ON executions (uid);
-- The fence of a start: one current execution an id.
CREATE UNIQUE INDEX executions_current_id ON executions (namespace, id) WHERE current = 1;
-- Which execution a start's request id made.
CREATE INDEX executions_request ON executions (request_key) WHERE request_key IS NOT NULL;
-- What is due.
CREATE INDEX executions_wake ON executions (wake_time) WHERE wake_time IS NOT NULL AND quarantined IS NULL;
-- Lists, newest first: all, by workflow, by state, by both.
CREATE INDEX executions_start ON executions (namespace, start_time, key);
CREATE INDEX executions_workflow ON executions (namespace, workflow, start_time, key);
CREATE INDEX executions_state ON executions (namespace, state, start_time, key);
CREATE INDEX executions_workflow_state ON executions (namespace, workflow, state, start_time, key);
-- What is closed, the longest first: what retention deletes.
CREATE INDEX executions_close ON executions (close_time, key)
    WHERE close_time IS NOT NULL AND delete_time IS NULL AND quarantined IS NULL;
-- What is to be removed.
CREATE INDEX executions_delete ON executions (delete_time, key) WHERE delete_time IS NOT NULL;

-- One row a run but the first, until all that is before it has been trimmed. Written by the committer, read to find where
-- the newest run begins, and by retention. Events can rebuild it.
CREATE TABLE runs (
    execution_key  INTEGER NOT NULL,
    run            INTEGER NOT NULL,
    first_seq      INTEGER NOT NULL,
    start_time     INTEGER NOT NULL,
    CONSTRAINT runs_once PRIMARY KEY (execution_key, run),
    CONSTRAINT runs_are_later_ones CHECK (run >= 2 AND first_seq >= 2)
) STRICT, WITHOUT ROWID;
-- Which runs ended long ago: each ended when the next one began.
CREATE INDEX runs_start ON runs (start_time, execution_key, run);
