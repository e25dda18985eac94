-- Times are microseconds since the epoch. All integers are BIGINT, flags too, so that one text reads both databases.
-- Indexes end with what SQLite's end with by themselves, so that the order of an answer is an index's in both.
-- Text that is compared or ordered has the collation "C", which orders as SQLite does, whatever the database's own.
--
-- Rows that come and go (`ready`, `held`, `sessions`) or change in place (`counters`) leave dead versions behind; the
-- settings of those tables let autovacuum come after some hundred of them instead of after a fifth of the table, and leave
-- room in each page, so that a version that changes no index is written beside its predecessor (HOT).

-- One row an execution. Written by the committers only. Events can rebuild all of it but `key`.
CREATE TABLE executions (
    key              BIGINT  GENERATED ALWAYS AS IDENTITY,
    uid              BYTEA   NOT NULL,
    namespace        TEXT    COLLATE "C" NOT NULL,
    id               TEXT    COLLATE "C" NOT NULL,
    current          BIGINT  NOT NULL,
    workflow         TEXT    COLLATE "C" NOT NULL,
    version          TEXT    NOT NULL,
    definition_hash  BYTEA   NOT NULL,
    input_digest     BYTEA   NOT NULL,
    request_key      BYTEA,
    request_content  BYTEA,
    state            BIGINT  NOT NULL,
    labels           TEXT    NOT NULL,
    start_time       BIGINT  NOT NULL,
    close_time       BIGINT,
    wake_time        BIGINT,
    floor_seq        BIGINT  NOT NULL DEFAULT 0,
    quarantined      TEXT,
    CONSTRAINT executions_key PRIMARY KEY (key),
    CONSTRAINT executions_current_is_boolean CHECK (current IN (0, 1)),
    CONSTRAINT executions_state_is_known CHECK (state BETWEEN 1 AND 7),
    CONSTRAINT executions_closed_has_time CHECK ((state >= 3) = (close_time IS NOT NULL)),
    CONSTRAINT executions_request_is_whole CHECK ((request_key IS NULL) = (request_content IS NULL))
) WITH (
    -- A running execution's row changes in place a few times in its life.
    fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02
);
CREATE UNIQUE INDEX executions_uid ON executions (uid);
-- The fence of a start: one current execution an id.
CREATE UNIQUE INDEX executions_current_id ON executions (namespace, id) WHERE current = 1;
-- Which execution a start's request id made.
CREATE INDEX executions_request ON executions (request_key, key) WHERE request_key IS NOT NULL;
-- What is due.
CREATE INDEX executions_wake ON executions (wake_time, key) WHERE wake_time IS NOT NULL AND quarantined IS NULL;
-- Lists, newest first: all, by workflow; closed states and open ones through the state.
CREATE INDEX executions_start ON executions (namespace, start_time, key);
CREATE INDEX executions_workflow ON executions (namespace, workflow, start_time, key);
CREATE INDEX executions_state ON executions (namespace, state, start_time, key);

-- One row a commit of an execution. Written by the committers, never changed. The truth. The unique key is the only lock;
-- a foreign key would cost a third of the rate, and the insert joins `executions` anyway.
CREATE TABLE history (
    execution_key  BIGINT  NOT NULL,
    first_seq      BIGINT  NOT NULL,
    last_seq       BIGINT  NOT NULL,
    run            BIGINT  NOT NULL,
    batch_id       BYTEA   NOT NULL,
    format         BIGINT  NOT NULL,
    events         BYTEA   NOT NULL,
    CONSTRAINT history_fence PRIMARY KEY (execution_key, first_seq),
    CONSTRAINT history_is_numbered CHECK (first_seq >= 1 AND last_seq >= first_seq)
) WITH (
    -- Only ever added to: vacuum comes for the visibility map and the freezing of old rows, a share of the table at a time.
    autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.1
);

-- The newest stored state of an execution; optional, ignored on any mismatch. Events can rebuild it.
CREATE TABLE snapshots (
    execution_key    BIGINT  NOT NULL,
    seq              BIGINT  NOT NULL,
    format           BIGINT  NOT NULL,
    definition_hash  BYTEA   NOT NULL,
    bytes            BYTEA   NOT NULL,
    CONSTRAINT snapshots_one PRIMARY KEY (execution_key)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- Payloads of more than 64 KiB, which events mention by digest. Events cannot rebuild it.
CREATE TABLE payloads (
    execution_key  BIGINT  NOT NULL,
    run            BIGINT  NOT NULL,
    digest         BYTEA   NOT NULL,
    json           TEXT    NOT NULL,
    CONSTRAINT payloads_once PRIMARY KEY (execution_key, run, digest)
);

-- Units that wait for a worker. Written by the committers, read by dispatch. Events can rebuild it.
CREATE TABLE ready (
    execution_key  BIGINT  NOT NULL,
    unit           TEXT    COLLATE "C" NOT NULL,
    queue          TEXT    COLLATE "C" NOT NULL,
    contract       TEXT    COLLATE "C" NOT NULL,
    language       TEXT    COLLATE "C" NOT NULL,
    priority       BIGINT  NOT NULL,
    ready_time     BIGINT  NOT NULL,
    CONSTRAINT ready_once PRIMARY KEY (execution_key, unit),
    CONSTRAINT ready_priority_range CHECK (priority BETWEEN 1 AND 5)
) WITH (
    -- Each row lives for the moment until a worker is free: the first of a pool must not stand behind a heap of dead ones.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000
);
-- The first of a pool, in order.
CREATE INDEX ready_pool ON ready (queue, contract, language, priority, ready_time, execution_key, unit);

-- Labels for filters. Written at the start. Events can rebuild it.
CREATE TABLE labels (
    namespace      TEXT    COLLATE "C" NOT NULL,
    key            TEXT    COLLATE "C" NOT NULL,
    value          TEXT    COLLATE "C" NOT NULL,
    start_time     BIGINT  NOT NULL,
    execution_key  BIGINT  NOT NULL,
    CONSTRAINT labels_once PRIMARY KEY (namespace, key, value, start_time, execution_key)
);

-- Executions by state: each committer adds to its own rows, readers sum. Rebuilt from `executions`.
CREATE TABLE counters (
    slot       BIGINT  NOT NULL,
    committer  BIGINT  NOT NULL,
    state      BIGINT  NOT NULL,
    count      BIGINT  NOT NULL,
    CONSTRAINT counters_once PRIMARY KEY (slot, committer, state)
) WITH (
    -- A few rows that change with every start and end, never in an indexed column.
    fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

-- Versions of workflows. Written by deploy, never changed.
CREATE TABLE definitions (
    key            BIGINT  GENERATED ALWAYS AS IDENTITY,
    namespace      TEXT    COLLATE "C" NOT NULL,
    name           TEXT    COLLATE "C" NOT NULL,
    version        TEXT    COLLATE "C" NOT NULL,
    version_order  BYTEA   NOT NULL,
    prerelease     BIGINT  NOT NULL,
    hash           BYTEA   NOT NULL,
    description    TEXT    NOT NULL,
    json           TEXT    NOT NULL,
    source         TEXT    NOT NULL,
    create_time    BIGINT  NOT NULL,
    CONSTRAINT definitions_key PRIMARY KEY (key),
    CONSTRAINT definitions_version UNIQUE (namespace, name, version)
);
CREATE INDEX definitions_order ON definitions (namespace, name, prerelease, version_order DESC);
CREATE INDEX definitions_hash ON definitions (hash, key);

-- Task contracts that definitions use. Written by deploy; answers "which versions of this task are in use".
CREATE TABLE contracts (
    namespace       TEXT    COLLATE "C" NOT NULL,
    task_name       TEXT    COLLATE "C" NOT NULL,
    task_version    TEXT    COLLATE "C" NOT NULL,
    definition_key  BIGINT  NOT NULL,
    CONSTRAINT contracts_once PRIMARY KEY (namespace, task_name, task_version, definition_key)
);
CREATE INDEX contracts_definition ON contracts (definition_key, task_name, task_version);

-- Sessions of workers. Written at registration and by presence; events cannot rebuild it.
CREATE TABLE sessions (
    id                 BYTEA   NOT NULL,
    worker_id          TEXT    NOT NULL,
    language           TEXT    NOT NULL,
    sdk                TEXT    NOT NULL,
    build              TEXT    NOT NULL,
    queues             TEXT    NOT NULL,
    contracts          TEXT    NOT NULL,
    slots              BIGINT  NOT NULL,
    message_bytes_max  BIGINT  NOT NULL,
    register_time      BIGINT  NOT NULL,
    contact_time       BIGINT  NOT NULL,
    connection         BIGINT  NOT NULL,
    CONSTRAINT sessions_id PRIMARY KEY (id)
) WITH (
    -- Each row's contact time changes once a second, in place.
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 500
);

-- Deliveries that outlive their first check. Written by presence and the session loop only; events cannot rebuild it.
CREATE TABLE held (
    execution_key      BIGINT  NOT NULL,
    unit               TEXT    COLLATE "C" NOT NULL,
    delivery           BIGINT  NOT NULL,
    session            BYTEA   NOT NULL,
    missing_since      BIGINT,
    beat_time          BIGINT  NOT NULL,
    heartbeat_timeout  BIGINT,
    progress           TEXT,
    CONSTRAINT held_once PRIMARY KEY (execution_key, unit, delivery)
) WITH (
    -- Changes with each progress and goes with its delivery.
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500
);
CREATE INDEX held_session ON held (session, execution_key, unit, delivery);
CREATE INDEX held_missing ON held (missing_since, execution_key, unit, delivery) WHERE missing_since IS NOT NULL;
CREATE INDEX held_beat ON held ((beat_time + heartbeat_timeout), execution_key, unit, delivery)
    WHERE heartbeat_timeout IS NOT NULL;

-- Live nodes and their time. Written by presence.
CREATE TABLE nodes (
    id     BYTEA   NOT NULL,
    slot   BIGINT  NOT NULL,
    now    BIGINT  NOT NULL,
    level  BIGINT  NOT NULL,
    CONSTRAINT nodes_id PRIMARY KEY (id)
) WITH (
    -- A few rows that change once a second, in place.
    fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200
);
