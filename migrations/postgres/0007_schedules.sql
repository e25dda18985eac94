-- One row a schedule. Written by callers and by the node that decides about its slots, each with a compare-and-set on
-- `version`; read by those, by lists, and by the search for what is due. Events cannot rebuild it.
--
-- `version` is raised with every write and is the fence: what was decided on an older one is not written. `revision` is raised
-- with a caller's change only. `write_id` tells after a lost COMMIT whose write stands. `settings` is what callers set, `progress`
-- what the decisions have come to, JSON texts both. Slots up to `cursor_time` have been decided. `next_time` is when there is
-- something to decide, early at worst. A deleted schedule keeps its row, without its id, for as long as its slots are kept.
CREATE TABLE schedules (
    key           BIGINT  GENERATED ALWAYS AS IDENTITY,
    uid           BYTEA   NOT NULL,
    namespace     TEXT    COLLATE "C" NOT NULL,
    id            TEXT    COLLATE "C" NOT NULL,
    version       BIGINT  NOT NULL,
    revision      BIGINT  NOT NULL,
    write_id      BYTEA   NOT NULL,
    workflow      TEXT    COLLATE "C" NOT NULL,
    settings      TEXT    NOT NULL,
    state         BIGINT  NOT NULL,
    note          TEXT    NOT NULL,
    invalid       TEXT,
    cursor_time   BIGINT  NOT NULL,
    next_time     BIGINT,
    progress      TEXT    NOT NULL,
    started       BIGINT  NOT NULL,
    skipped       BIGINT  NOT NULL,
    missed        BIGINT  NOT NULL,
    failed        BIGINT  NOT NULL,
    create_time   BIGINT  NOT NULL,
    update_time   BIGINT  NOT NULL,
    delete_time   BIGINT,
    CONSTRAINT schedules_key PRIMARY KEY (key),
    CONSTRAINT schedules_version_counts CHECK (version >= 1 AND revision BETWEEN 1 AND version),
    CONSTRAINT schedules_state_is_known CHECK (state BETWEEN 1 AND 4),
    CONSTRAINT schedules_invalid_says_why CHECK (state <> 3 OR invalid IS NOT NULL),
    CONSTRAINT schedules_deleted_is_quiet CHECK (delete_time IS NULL OR next_time IS NULL)
) WITH (
    -- A row changes with each of its slots.
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500
);
CREATE UNIQUE INDEX schedules_uid ON schedules (uid);
-- One existing schedule an id; lists by id.
CREATE UNIQUE INDEX schedules_id ON schedules (namespace, id) WHERE delete_time IS NULL;
-- Lists of a workflow, and of a state.
CREATE INDEX schedules_workflow ON schedules (namespace, workflow, id) WHERE delete_time IS NULL;
CREATE INDEX schedules_state ON schedules (namespace, state, id) WHERE delete_time IS NULL;
-- What is due.
CREATE INDEX schedules_next ON schedules (next_time, key) WHERE next_time IS NOT NULL;
-- What was deleted long ago.
CREATE INDEX schedules_delete ON schedules (delete_time, key) WHERE delete_time IS NOT NULL;

-- The ledger: one row a slot, or a stretch of slots that were missed together. Written with the schedule's row and the
-- execution's first rows in one transaction; a slot that waits for its turn is the only one that is written again. Read by lists.
-- Events cannot rebuild it.
--
-- The key is the identity of a slot: its schedule and its nominal time, and what a caller asked for beside that has
-- the name of the call, too (kind 2 and 3). `planned_time` is the nominal time with its jitter, `actual_time` when it was decided.
CREATE TABLE slots (
    schedule_key    BIGINT  NOT NULL,
    nominal_time    BIGINT  NOT NULL,
    kind            BIGINT  NOT NULL,
    request         TEXT    COLLATE "C" NOT NULL,
    planned_time    BIGINT  NOT NULL,
    actual_time     BIGINT  NOT NULL,
    outcome         BIGINT  NOT NULL,
    last_time       BIGINT  NOT NULL,
    slot_count      BIGINT  NOT NULL,
    execution_id    TEXT,
    execution_uid   BYTEA,
    detail          TEXT    NOT NULL,
    CONSTRAINT slots_once PRIMARY KEY (schedule_key, nominal_time, kind, request),
    CONSTRAINT slots_kind_is_known CHECK (kind BETWEEN 1 AND 3),
    CONSTRAINT slots_outcome_is_known CHECK (outcome BETWEEN 1 AND 8),
    CONSTRAINT slots_started_has_execution CHECK ((outcome = 1) = (execution_uid IS NOT NULL)),
    CONSTRAINT slots_execution_is_whole CHECK ((execution_id IS NULL) = (execution_uid IS NULL)),
    CONSTRAINT slots_stretch_is_counted CHECK (slot_count >= 1 AND last_time >= nominal_time)
);
-- What was decided long ago.
CREATE INDEX slots_actual ON slots (actual_time, schedule_key, nominal_time, kind, request);

-- The calls that changed schedules and had a `request_id`, for a day. Written with the change that they made; read when a
-- call comes again. Events cannot rebuild it.
CREATE TABLE schedule_requests (
    request_key      BYTEA   NOT NULL,
    request_content  BYTEA   NOT NULL,
    schedule_key     BIGINT  NOT NULL,
    time             BIGINT  NOT NULL,
    CONSTRAINT schedule_requests_once PRIMARY KEY (request_key)
);
CREATE INDEX schedule_requests_time ON schedule_requests (time, request_key);
