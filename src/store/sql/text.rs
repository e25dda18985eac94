//! The SQL that both dialects understand.
//!
//! Names of columns stand here once. Every query that runs in a loop names the index that it counts on; a test in each
//! dialect asks the planner whether it is used. Statements over many rows ([`Rows`]) read their list as `v`.

use super::Rows;

macro_rules! execution_columns {
    () => {
        "e.key, e.uid, e.id, e.current, e.workflow, e.version, e.definition_hash, e.input_digest, e.request_key, \
         e.request_content, e.state, e.labels, e.start_time, e.close_time, e.wake_time, e.quarantined, e.run, \
         e.delete_time"
    };
}
macro_rules! definition_columns {
    () => {
        "d.key, d.name, d.version, d.version_order, d.prerelease, d.hash, d.description, d.json, d.source, d.create_time"
    };
}
macro_rules! session_columns {
    () => {
        "id, worker_id, language, sdk, build, queues, contracts, slots, message_bytes_max, register_time, contact_time, connection, \
         timeout"
    };
}
macro_rules! held_columns {
    () => {
        "h.session, h.execution_key, h.unit, h.delivery, h.missing_since, h.beat_time, h.heartbeat_timeout, h.progress"
    };
}

/// Columns of an execution's row, of `executions AS e`.
pub(crate) const EXECUTION_COLUMNS: &str = execution_columns!();
pub(crate) const EXECUTION_BY_KEY: &str =
    concat!("SELECT ", execution_columns!(), " FROM executions AS e WHERE e.key = $1 AND e.delete_time IS NULL");
pub(crate) const EXECUTION_BY_UID: &str =
    concat!("SELECT ", execution_columns!(), " FROM executions AS e WHERE e.uid = $1 AND e.delete_time IS NULL");
/// Index `executions_current_id`.
pub(crate) const EXECUTION_BY_ID: &str = concat!(
    "SELECT ",
    execution_columns!(),
    " FROM executions AS e WHERE e.namespace = $1 AND e.id = $2 AND e.current = 1"
);
/// Index `executions_request`, and so that no other one can be walked.
pub(crate) const EXECUTION_BY_REQUEST: &str = concat!(
    "SELECT ",
    execution_columns!(),
    " FROM executions AS e WHERE e.request_key = $3 AND e.namespace || '' = $1 AND e.id = $2 ORDER BY e.key DESC LIMIT 1"
);

/// Number of the first event of the newest run of execution $1, in a scalar query. Key `runs_once`.
macro_rules! newest_run_from {
    () => {
        "coalesce((SELECT r.first_seq FROM runs AS r WHERE r.execution_key = $1 ORDER BY r.run DESC LIMIT 1), \
           (SELECT f.floor_seq + 1 FROM executions AS f WHERE f.key = $1))"
    };
}
/// Of `history AS h`: rows of execution $1 from the one that holds an event on. Index `history_fence`.
macro_rules! history_from {
    ($number:expr) => {
        concat!(
            "h.execution_key = $1 AND h.last_seq >= ",
            $number,
            " AND h.first_seq >= coalesce((SELECT max(f.first_seq) FROM history AS f \
               WHERE f.execution_key = $1 AND f.first_seq <= ",
            $number,
            "), 0)"
        )
    };
}
macro_rules! history_columns {
    () => {
        "h.first_seq, h.last_seq, h.run, h.format, h.batch_id, h.events"
    };
}
/// Stands for the columns of an execution in rows of other kinds.
macro_rules! no_execution {
    () => {
        "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, "
    };
}
macro_rules! load_execution {
    () => {
        concat!(
            "SELECT ",
            execution_columns!(),
            ", CAST(1 AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), \
               CAST(NULL AS BYTEA), CAST(NULL AS BYTEA), CAST(NULL AS TEXT) FROM executions AS e \
               WHERE e.key = $1 AND e.delete_time IS NULL"
        )
    };
}
macro_rules! load_snapshot {
    () => {
        concat!(
            " UNION ALL SELECT ",
            no_execution!(),
            "2, s.seq, NULL, NULL, s.format, s.definition_hash, s.bytes, NULL FROM snapshots AS s WHERE s.execution_key = $1 \
               AND s.seq >= ",
            newest_run_from!()
        )
    };
}
macro_rules! load_history {
    ($number:expr) => {
        concat!(
            " UNION ALL SELECT ",
            no_execution!(),
            "3, ",
            history_columns!(),
            ", NULL FROM history AS h WHERE ",
            history_from!($number)
        )
    };
}
macro_rules! load_payloads {
    ($condition:expr) => {
        concat!(
            " UNION ALL SELECT ",
            no_execution!(),
            "4, NULL, NULL, NULL, NULL, p.digest, NULL, min(p.json) FROM payloads AS p WHERE p.execution_key = $1 \
               AND p.run >= (SELECT n.run FROM executions AS n WHERE n.key = $1)",
            $condition,
            " GROUP BY p.digest"
        )
    };
}

macro_rules! tail_from {
    () => {
        concat!(
            "(SELECT CASE WHEN $2 < b.number THEN b.number ELSE $2 END FROM (SELECT ",
            newest_run_from!(),
            " AS number) AS b)"
        )
    };
}

/// All that the newest run of execution $1 has, in one statement, so that it is one view: rows of several kinds, in any order.
///
/// The columns are those of an execution; then the kind of row ([`LOADED_EXECUTION`] …); then those of history, which
/// snapshots and payloads share; then the text of a payload.
pub(crate) const LOAD: &str = concat!(
    load_execution!(),
    load_snapshot!(),
    load_history!(concat!(
        "coalesce((SELECT l.seq + 1 FROM snapshots AS l WHERE l.execution_key = $1 AND l.seq >= ",
        newest_run_from!(),
        "), ",
        newest_run_from!(),
        ")"
    )),
    load_payloads!("")
);
/// The same without a snapshot, from event $2 on, or from the first event of the newest run if that is later; payloads only
/// where there is such an event.
pub(crate) const LOAD_TAIL: &str = concat!(
    load_execution!(),
    load_history!(tail_from!()),
    load_payloads!(concat!(" AND EXISTS (SELECT 1 FROM history AS h WHERE ", history_from!(tail_from!()), ")"))
);
/// Column of [`LOAD`] that tells the kind of row.
pub(crate) const LOADED_KIND: usize = 18;
/// Where the columns of history begin.
pub(crate) const LOADED_HISTORY_FROM: usize = 19;
/// Column of a payload's digest.
pub(crate) const LOADED_DIGEST: usize = 23;
/// Column of a payload's text.
pub(crate) const LOADED_JSON: usize = 25;
/// The execution's row.
pub(crate) const LOADED_EXECUTION: i64 = 1;
/// Its snapshot.
pub(crate) const LOADED_SNAPSHOT: i64 = 2;
/// A row of its history.
pub(crate) const LOADED_HISTORY: i64 = 3;
/// One of its large payloads.
pub(crate) const LOADED_PAYLOAD: i64 = 4;

/// Rows from the one that holds event $2 on: at most $3, and none after the first ones that have $4 bytes together. The
/// bytes themselves are only read of those that are answered. Index `history_fence`.
pub(crate) const HISTORY: &str = concat!(
    "SELECT ",
    history_columns!(),
    " FROM history AS h WHERE ",
    history_from!("$2"),
    " AND EXISTS (SELECT 1 FROM executions AS e WHERE e.key = $1 AND e.delete_time IS NULL) \
     AND h.first_seq <= (SELECT max(s.first_seq) FROM (\
       SELECT w.first_seq, sum(w.bytes) OVER (ORDER BY w.first_seq ROWS UNBOUNDED PRECEDING) - w.bytes AS bytes_before FROM (\
         SELECT h.first_seq, length(h.events) AS bytes FROM history AS h WHERE ",
    history_from!("$2"),
    " ORDER BY h.first_seq LIMIT $3) AS w) AS s WHERE s.bytes_before < $4) ORDER BY h.first_seq"
);
/// Index `history_fence`.
pub(crate) static NEWEST_NUMBERS: Rows = Rows::new(
    "SELECT e.key, coalesce((SELECT h.last_seq FROM history AS h WHERE h.execution_key = e.key \
     ORDER BY h.first_seq DESC LIMIT 1), e.floor_seq) FROM ",
    1,
    " AS v CROSS JOIN executions AS e WHERE e.key = v.column1 AND e.delete_time IS NULL",
);
pub(crate) const HISTORY_BATCH: &str = "SELECT batch_id FROM history WHERE execution_key = $1 AND first_seq = $2";
pub(crate) const KEY_OF_UID: &str = "SELECT key FROM executions WHERE uid = $1";
/// Of an execution and a digest: the digest, and the text or null. Key `payloads_once`.
pub(crate) static PAYLOADS: Rows = Rows::new(
    "SELECT v.column2, (SELECT p.json FROM payloads AS p WHERE p.execution_key = v.column1 AND p.digest = v.column2 LIMIT 1) \
     FROM ",
    2,
    " AS v WHERE v.column1 IS NOT NULL",
);

pub(crate) const COUNT: &str =
    "SELECT state, CAST(sum(count) AS BIGINT) FROM counters GROUP BY state HAVING sum(count) > 0";
/// Index `executions_wake`.
pub(crate) const DUE: &str = "SELECT key, wake_time FROM executions \
     WHERE wake_time IS NOT NULL AND quarantined IS NULL AND wake_time <= $1 ORDER BY wake_time, key LIMIT $2";
/// Of a key and a time. Key `executions_key`, and so that what is due is not walked.
pub(crate) static STILL_DUE: Rows = Rows::new(
    "SELECT e.key FROM ",
    2,
    " AS v CROSS JOIN executions AS e WHERE e.key = v.column1 \
     AND CASE WHEN e.quarantined IS NULL THEN e.wake_time END <= v.column2",
);
/// Of (queue, contract, language): those with a waiting unit, as a look at the first one. In its order, so that PostgreSQL
/// does not walk over other pools to find any one. Index `ready_pool`.
pub(crate) static WAITING_POOLS: Rows = Rows::new(
    "SELECT v.column1, v.column2, v.column3 FROM ",
    3,
    " AS v WHERE (SELECT r.execution_key FROM ready AS r \
       WHERE r.queue = v.column1 AND r.contract = v.column2 AND r.language = v.column3 \
       ORDER BY r.priority, r.ready_time, r.execution_key, r.unit LIMIT 1) IS NOT NULL",
);
/// Index `ready_pool`.
pub(crate) const READY: &str = "SELECT execution_key, unit, priority, ready_time FROM ready \
     WHERE queue = $1 AND contract = $2 AND language = $3 ORDER BY priority, ready_time, execution_key, unit LIMIT $4";
pub(crate) const QUARANTINE: &str = "UPDATE executions SET quarantined = $2 WHERE key = $1";
pub(crate) const QUARANTINE_READY: &str = "DELETE FROM ready WHERE execution_key = $1";

pub(crate) const DEFINITION_INSERT: &str = "INSERT INTO definitions \
     (namespace, name, version, version_order, prerelease, hash, description, json, source, create_time) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING RETURNING key";
pub(crate) static CONTRACTS_INSERT: Rows = Rows::new(
    "INSERT INTO contracts (definition_key, namespace, task_name, task_version) \
     SELECT column1, column2, column3, column4 FROM ",
    4,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING",
);
/// Index `definitions_hash`.
pub(crate) const DEFINITION_BY_HASH: &str = concat!(
    "SELECT ",
    definition_columns!(),
    " FROM definitions AS d WHERE d.hash = $2 AND d.namespace = $1 ORDER BY d.key LIMIT 1"
);
pub(crate) const DEFINITION_BY_VERSION: &str = concat!(
    "SELECT ",
    definition_columns!(),
    " FROM definitions AS d WHERE d.namespace = $1 AND d.name = $2 AND d.version = $3"
);
/// Index `definitions_order`: $3 is 1 where a pre-release may answer.
pub(crate) const DEFINITION_LATEST: &str = concat!(
    "SELECT ",
    definition_columns!(),
    " FROM definitions AS d WHERE d.namespace = $1 AND d.name = $2 AND d.prerelease <= $3 \
      ORDER BY d.prerelease, d.version_order DESC LIMIT 1"
);
/// $2 is the only name, or null; after the entry ($3, $4), or from the start where it is null.
pub(crate) const DEFINITIONS: &str = concat!(
    "SELECT ",
    definition_columns!(),
    " FROM definitions AS d WHERE d.namespace = $1 AND ($2 IS NULL OR d.name = $2) \
      AND ($3 IS NULL OR d.name > $3 OR (d.name = $3 AND d.version_order < $4)) \
      ORDER BY d.name, d.version_order DESC LIMIT $5"
);
/// Index `contracts_definition`.
pub(crate) static CONTRACTS: Rows = Rows::new(
    "SELECT c.definition_key, c.task_name, c.task_version FROM ",
    1,
    " AS v CROSS JOIN contracts AS c WHERE c.definition_key = v.column1",
);
pub(crate) const CONTRACT_VERSIONS: &str =
    "SELECT DISTINCT task_version FROM contracts WHERE namespace = $1 AND task_name = $2 ORDER BY task_version";

pub(crate) const SESSION_INSERT: &str = concat!(
    "INSERT INTO sessions (",
    session_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT (id) DO UPDATE SET \
      worker_id = $2, language = $3, sdk = $4, build = $5, queues = $6, contracts = $7, slots = $8, \
      message_bytes_max = $9, register_time = $10, contact_time = $11, connection = $12, timeout = $13"
);
/// The contact always moves, so that whoever judged the one before ends nothing.
pub(crate) const SESSION_RESUME: &str = concat!(
    "UPDATE sessions SET worker_id = $2, language = $3, sdk = $4, build = $5, queues = $6, contracts = $7, slots = $8, \
     message_bytes_max = $9, contact_time = CASE WHEN contact_time < $10 THEN $10 ELSE contact_time + 1 END, \
     connection = connection + 1, timeout = $11 WHERE id = $1 RETURNING ",
    session_columns!()
);
pub(crate) const SESSION: &str = concat!("SELECT ", session_columns!(), " FROM sessions WHERE id = $1");
/// After the id $1; no bytes stand before the first.
pub(crate) const SESSIONS: &str =
    concat!("SELECT ", session_columns!(), " FROM sessions WHERE id > $1 ORDER BY id LIMIT $2");
pub(crate) const SESSION_END: &str = "DELETE FROM sessions WHERE id = $1 AND ($2 IS NULL OR contact_time = $2)";

/// Index `held_session`.
pub(crate) const HELD_BY_SESSION: &str = concat!(
    "SELECT ",
    held_columns!(),
    " FROM held AS h WHERE h.session = $1 ORDER BY h.execution_key, h.unit, h.delivery LIMIT $2"
);
pub(crate) const HELD_BY_EXECUTION: &str =
    concat!("SELECT ", held_columns!(), " FROM held AS h WHERE h.execution_key = $1 ORDER BY h.unit, h.delivery");
/// Steps from session to session through the index `held_session`, so that the cost is in the number of sessions; each that
/// is gone has a row, so no more of them are looked at than rows are wanted.
pub(crate) const HELD_WITHOUT_SESSION: &str = concat!(
    "WITH RECURSIVE holder (id) AS (\
       SELECT (SELECT session FROM held ORDER BY session LIMIT 1) \
       UNION ALL SELECT (SELECT session FROM held WHERE session > holder.id ORDER BY session LIMIT 1) \
         FROM holder WHERE holder.id IS NOT NULL) \
     SELECT ",
    held_columns!(),
    " FROM (SELECT id FROM holder WHERE id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM sessions AS s WHERE s.id = holder.id) \
       ORDER BY id LIMIT $1) AS gone CROSS JOIN held AS h WHERE h.session = gone.id \
     ORDER BY h.session, h.execution_key, h.unit, h.delivery LIMIT $1"
);
/// Missing for longer than the session's timeout; where it has none of its own, than $2. Index `held_missing`.
pub(crate) const HELD_MISSING: &str = concat!(
    "SELECT ",
    held_columns!(),
    " FROM held AS h WHERE h.missing_since IS NOT NULL AND h.missing_since < $1 \
     AND h.missing_since < $1 - coalesce((SELECT s.timeout FROM sessions AS s WHERE s.id = h.session), $2) \
     ORDER BY h.missing_since, h.execution_key, h.unit, h.delivery LIMIT $3"
);
/// Index `held_beat`.
pub(crate) const HELD_OVERDUE: &str = concat!(
    "SELECT ",
    held_columns!(),
    " FROM held AS h WHERE h.heartbeat_timeout IS NOT NULL AND h.beat_time + h.heartbeat_timeout <= $1 \
     ORDER BY h.beat_time + h.heartbeat_timeout, h.execution_key, h.unit, h.delivery LIMIT $2"
);
pub(crate) static CONTACTS: Rows = Rows::new(
    "UPDATE sessions SET contact_time = v.column2 FROM ",
    2,
    " AS v WHERE sessions.id = v.column1 AND sessions.contact_time < v.column2",
);
pub(crate) static HELD_WRITE: Rows = Rows::new(
    "INSERT INTO held (execution_key, unit, delivery, session, missing_since, beat_time, heartbeat_timeout, progress) \
     SELECT column1, column2, column3, column4, column5, column6, column7, column8 FROM ",
    8,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT (execution_key, unit, delivery) DO UPDATE SET session = excluded.session, \
     missing_since = excluded.missing_since, heartbeat_timeout = excluded.heartbeat_timeout, \
     beat_time = CASE WHEN excluded.beat_time < held.beat_time THEN held.beat_time ELSE excluded.beat_time END, \
     progress = CASE WHEN excluded.beat_time < held.beat_time THEN coalesce(held.progress, excluded.progress) \
       ELSE coalesce(excluded.progress, held.progress) END",
);
pub(crate) static HELD_DELETE: Rows = Rows::new("DELETE FROM held WHERE (execution_key, unit, delivery) IN ", 3, "");
pub(crate) const NODES: &str = "SELECT id, now, level FROM nodes ORDER BY id";

/// All statements over many rows, for a look at their plans.
#[cfg(test)]
pub(crate) fn statements_over_many() -> [&'static Rows; 9] {
    [
        &NEWEST_NUMBERS,
        &PAYLOADS,
        &STILL_DUE,
        &WAITING_POOLS,
        &CONTRACTS,
        &CONTRACTS_INSERT,
        &CONTACTS,
        &HELD_WRITE,
        &HELD_DELETE,
    ]
}
