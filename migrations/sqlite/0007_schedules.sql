-- One row a schedule. Written by callers and by the node that decides about its slots, each with a compare-and-set on
-- `version`; read by those, by lists, and by the search for what is due. Events cannot rebuild it.
--
-- `version` is raised with every write and is the fence: what was decided on an older one is not written. `revision` is raised
-- with a caller's change only. `write_id` tells after a lost COMMIT whose write stands. `settings` is what callers set, `progress`
-- what the decisions have come to, JSON texts both. Slots up to `cursor_time` have been decided. `next_time` is when there is
-- something to decide, early at worst. A deleted schedule keeps its row, without its id, for as long as its slots are kept.
CREATE TABLE schedules (
    key           INTEGER PRIMARY KEY AUTOINCREMENT,
    uid           BLOB    NOT NULL,
    namespace     TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    revision      INTEGER NOT NULL,
    write_id      BLOB    NOT NULL,
    workflow      TEXT    NOT NULL,
    settings      TEXT    NOT NULL,
    state         INTEGER NOT NULL,
    note          TEXT    NOT NULL,
    invalid       TEXT,
    cursor_time   INTEGER NOT NULL,
    next_time     INTEGER,
    progress      TEXT    NOT NULL,
    started       INTEGER NOT NULL,
    skipped       INTEGER NOT NULL,
    missed        INTEGER NOT NULL,
    failed        INTEGER NOT NULL,
    create_time   INTEGER NOT NULL,
    update_time   INTEGER NOT NULL,
    delete_time   INTEGER,
    CONSTRAINT schedules_version_counts CHECK (version >= 1 AND revision BETWEEN 1 AND version),
    CONSTRAINT schedules_state_is_known CHECK (state BETWEEN 1 AND 4),
    CONSTRAINT schedules_invalid_says_why CHECK (state <> 3 OR invalid IS NOT NULL),
    CONSTRAINT schedules_deleted_is_quiet CHECK (delete_time IS NULL OR next_time IS NULL)
) STRICT;
CREATE UNIQUE INDEX schedules_uid ON schedules (uid);
-- One existing schedule an id; lists by id.
CREATE UNIQUE INDEX schedules_id ON schedules (namespace, id) WHERE delete_time IS NULL;
-- Lists of a workflow, and of a state.
CREATE INDEX schedules_workflow ON schedules (namespace, workflow, id) WHERE delete_time IS NULL;
CREATE INDEX schedules_state ON schedules (namespace, state, id) WHERE delete_time IS NULL;
-- What is due.
CREATE INDEX schedules_next ON schedules (next_time) WHERE next_time IS NOT NULL;
-- What was deleted long ago.
CREATE INDEX schedules_delete ON schedules (delete_time) WHERE delete_time IS NOT NULL;

-- The ledger: one row a slot, or a stretch of slots that were missed together. Written with the schedule's row and the
-- execution's first rows in one transaction; a slot that waits for its turn is the only one that is written again. Read by lists.
-- Events cannot rebuild it.
--
-- The key is the identity of a slot: its schedule and its nominal time, and what a caller asked for beside that has
-- the name of the call, too (kind 2 and 3). `planned_time` is the nominal time with its jitter, `actual_time` when it was decided.
CREATE TABLE slots (
    schedule_key    INTEGER NOT NULL,
    nominal_time    INTEGER NOT NULL,
    kind            INTEGER NOT NULL,
    request         TEXT    NOT NULL,
    planned_time    INTEGER NOT NULL,
    actual_time     INTEGER NOT NULL,
    outcome         INTEGER NOT NULL,
    last_time       INTEGER NOT NULL,
    slot_count      INTEGER NOT NULL,
    execution_id    TEXT,
    execution_uid   BLOB,
    detail          TEXT    NOT NULL,
    CONSTRAINT slots_once PRIMARY KEY (schedule_key, nominal_time, kind, request),
    CONSTRAINT slots_kind_is_known CHECK (kind BETWEEN 1 AND 3),
    CONSTRAINT slots_outcome_is_known CHECK (outcome BETWEEN 1 AND 8),
    CONSTRAINT slots_started_has_execution CHECK ((outcome = 1) = (execution_uid IS NOT NULL)),
    CONSTRAINT slots_execution_is_whole CHECK ((execution_id IS NULL) = (execution_uid IS NULL)),
    CONSTRAINT slots_stretch_is_counted CHECK (slot_count >= 1 AND last_time >= nominal_time)
) STRICT, WITHOUT ROWID;
-- What was decided long ago.
CREATE INDEX slots_actual ON slots (actual_time);

-- The calls that changed schedules and had a `request_id`, for a day. Written with the change that they made; read when a
-- call comes again. Events cannot rebuild it.
CREATE TABLE schedule_requests (
    request_key      BLOB    NOT NULL,
    request_content  BLOB    NOT NULL,
    schedule_key     INTEGER NOT NULL,
    time             INTEGER NOT NULL,
    CONSTRAINT schedule_requests_once PRIMARY KEY (request_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_requests_time ON schedule_requests (time);
