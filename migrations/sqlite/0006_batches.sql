-- One row a batch: an action on all executions that a filter names. Written by the call that made it, by the node that works
-- it off (after each portion) and by the call that cancels it; read by those and by lists. Events cannot rebuild it.
--
-- `portion` is raised with each portion that is done, and is what decides between two nodes that did the same one. The
-- cursor is where the next portion begins: after this execution in the list of those that match, newest first.
CREATE TABLE batches (
    id               BLOB    NOT NULL,
    namespace        TEXT    NOT NULL,
    request_content  BLOB,
    action           INTEGER NOT NULL,
    reason           TEXT    NOT NULL,
    filter           TEXT    NOT NULL,
    executions_max   INTEGER NOT NULL,
    state            INTEGER NOT NULL,
    expected         INTEGER NOT NULL,
    is_counted       INTEGER NOT NULL,
    create_time      INTEGER NOT NULL,
    end_time         INTEGER,
    portion          INTEGER NOT NULL,
    cursor_time      INTEGER,
    cursor_key       INTEGER,
    done             INTEGER NOT NULL,
    skipped          INTEGER NOT NULL,
    failed           INTEGER NOT NULL,
    failures         TEXT    NOT NULL,
    CONSTRAINT batches_once PRIMARY KEY (id),
    CONSTRAINT batches_action_is_known CHECK (action BETWEEN 1 AND 4),
    CONSTRAINT batches_state_is_known CHECK (state BETWEEN 1 AND 3),
    CONSTRAINT batches_counted_is_boolean CHECK (is_counted IN (0, 1)),
    CONSTRAINT batches_ended_has_time CHECK ((state <> 1) = (end_time IS NOT NULL)),
    CONSTRAINT batches_cursor_is_whole CHECK ((cursor_time IS NULL) = (cursor_key IS NULL))
) STRICT, WITHOUT ROWID;
-- Lists, newest first.
CREATE INDEX batches_create ON batches (namespace, create_time, id);
-- What is to be worked off, the oldest first.
CREATE INDEX batches_running ON batches (create_time, id) WHERE state = 1;
-- What ended long ago.
CREATE INDEX batches_end ON batches (end_time) WHERE end_time IS NOT NULL;
