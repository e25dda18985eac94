-- Times are microseconds since the epoch. Hashes and uids are BLOBs.

-- One row an execution. Written by the committer only. Events can rebuild all of it but `key`.
CREATE TABLE executions (
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
    CONSTRAINT executions_current_is_boolean CHECK (current IN (0, 1)),
    CONSTRAINT executions_state_is_known CHECK (state BETWEEN 1 AND 7),
    CONSTRAINT executions_closed_has_time CHECK ((state >= 3) = (close_time IS NOT NULL)),
    CONSTRAINT executions_request_is_whole CHECK ((request_key IS NULL) = (request_content IS NULL))
) STRICT;
CREATE UNIQUE INDEX executions_uid ON executions (uid);
-- The fence of a start: one current execution an id.
CREATE UNIQUE INDEX executions_current_id ON executions (namespace, id) WHERE current = 1;
-- Which execution a start's request id made.
CREATE INDEX executions_request ON executions (request_key) WHERE request_key IS NOT NULL;
-- What is due.
CREATE INDEX executions_wake ON executions (wake_time) WHERE wake_time IS NOT NULL AND quarantined IS NULL;
-- Lists, newest first: all, by workflow; closed states and open ones through the state.
CREATE INDEX executions_start ON executions (namespace, start_time, key);
CREATE INDEX executions_workflow ON executions (namespace, workflow, start_time, key);
CREATE INDEX executions_state ON executions (namespace, state, start_time, key);

-- One row a commit of an execution. Written by the committer, never changed. The truth. The unique key is the only lock.
CREATE TABLE history (
    execution_key  INTEGER NOT NULL,
    first_seq      INTEGER NOT NULL,
    last_seq       INTEGER NOT NULL,
    run            INTEGER NOT NULL,
    batch_id       BLOB    NOT NULL,
    format         INTEGER NOT NULL,
    events         BLOB    NOT NULL,
    CONSTRAINT history_fence PRIMARY KEY (execution_key, first_seq),
    CONSTRAINT history_is_numbered CHECK (first_seq >= 1 AND last_seq >= first_seq)
) STRICT, WITHOUT ROWID;

-- The newest stored state of an execution; optional, ignored on any mismatch. Events can rebuild it.
CREATE TABLE snapshots (
    execution_key    INTEGER PRIMARY KEY,
    seq              INTEGER NOT NULL,
    format           INTEGER NOT NULL,
    definition_hash  BLOB    NOT NULL,
    bytes            BLOB    NOT NULL
) STRICT;

-- Payloads of more than 64 KiB, which events mention by digest. Events cannot rebuild it.
CREATE TABLE payloads (
    execution_key  INTEGER NOT NULL,
    run            INTEGER NOT NULL,
    digest         BLOB    NOT NULL,
    json           TEXT    NOT NULL,
    CONSTRAINT payloads_once PRIMARY KEY (execution_key, run, digest)
) STRICT;

-- Units that wait for a worker. Written by the committer, read by dispatch. Events can rebuild it.
CREATE TABLE ready (
    execution_key  INTEGER NOT NULL,
    unit           TEXT    NOT NULL,
    queue          TEXT    NOT NULL,
    contract       TEXT    NOT NULL,
    language       TEXT    NOT NULL,
    priority       INTEGER NOT NULL,
    ready_time     INTEGER NOT NULL,
    CONSTRAINT ready_once PRIMARY KEY (execution_key, unit),
    CONSTRAINT ready_priority_range CHECK (priority BETWEEN 1 AND 5)
) STRICT, WITHOUT ROWID;
-- The first of a pool, in order.
CREATE INDEX ready_pool ON ready (queue, contract, language, priority, ready_time, execution_key, unit);

-- Labels for filters. Written at the start. Events can rebuild it.
CREATE TABLE labels (
    namespace      TEXT    NOT NULL,
    key            TEXT    NOT NULL,
    value          TEXT    NOT NULL,
    start_time     INTEGER NOT NULL,
    execution_key  INTEGER NOT NULL,
    CONSTRAINT labels_once PRIMARY KEY (namespace, key, value, start_time, execution_key)
) STRICT, WITHOUT ROWID;

-- Executions by state: each committer adds to its own rows, readers sum. Rebuilt from `executions`.
CREATE TABLE counters (
    slot       INTEGER NOT NULL,
    committer  INTEGER NOT NULL,
    state      INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    CONSTRAINT counters_once PRIMARY KEY (slot, committer, state)
) STRICT, WITHOUT ROWID;

-- Versions of workflows. Written by deploy, never changed.
CREATE TABLE definitions (
    key            INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace      TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    version        TEXT    NOT NULL,
    version_order  BLOB    NOT NULL,
    prerelease     INTEGER NOT NULL,
    hash           BLOB    NOT NULL,
    description    TEXT    NOT NULL,
    json           TEXT    NOT NULL,
    source         TEXT    NOT NULL,
    create_time    INTEGER NOT NULL,
    CONSTRAINT definitions_version UNIQUE (namespace, name, version)
) STRICT;
CREATE INDEX definitions_order ON definitions (namespace, name, prerelease, version_order DESC);
CREATE INDEX definitions_hash ON definitions (hash);

-- Task contracts that definitions use. Written by deploy; answers "which versions of this task are in use".
CREATE TABLE contracts (
    namespace       TEXT    NOT NULL,
    task_name       TEXT    NOT NULL,
    task_version    TEXT    NOT NULL,
    definition_key  INTEGER NOT NULL,
    CONSTRAINT contracts_once PRIMARY KEY (namespace, task_name, task_version, definition_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX contracts_definition ON contracts (definition_key, task_name, task_version);

-- Sessions of workers. Written at registration and by presence; events cannot rebuild it.
CREATE TABLE sessions (
    id                 BLOB    NOT NULL PRIMARY KEY,
    worker_id          TEXT    NOT NULL,
    language           TEXT    NOT NULL,
    sdk                TEXT    NOT NULL,
    build              TEXT    NOT NULL,
    queues             TEXT    NOT NULL,
    contracts          TEXT    NOT NULL,
    slots              INTEGER NOT NULL,
    message_bytes_max  INTEGER NOT NULL,
    register_time      INTEGER NOT NULL,
    contact_time       INTEGER NOT NULL,
    connection         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Deliveries that outlive their first check. Written by presence and the session loop only; events cannot rebuild it.
CREATE TABLE held (
    execution_key      INTEGER NOT NULL,
    unit               TEXT    NOT NULL,
    delivery           INTEGER NOT NULL,
    session            BLOB    NOT NULL,
    missing_since      INTEGER,
    beat_time          INTEGER NOT NULL,
    heartbeat_timeout  INTEGER,
    progress           TEXT,
    CONSTRAINT held_once PRIMARY KEY (execution_key, unit, delivery)
) STRICT, WITHOUT ROWID;
CREATE INDEX held_session ON held (session, execution_key, unit, delivery);
CREATE INDEX held_missing ON held (missing_since) WHERE missing_since IS NOT NULL;
CREATE INDEX held_beat ON held (beat_time + heartbeat_timeout) WHERE heartbeat_timeout IS NOT NULL;

-- Live nodes and their time. Written by presence.
CREATE TABLE nodes (
    id     BLOB    NOT NULL PRIMARY KEY,
    slot   INTEGER NOT NULL,
    now    INTEGER NOT NULL,
    level  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
