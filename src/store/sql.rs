//! SQL text that both dialects understand: reads, with numbered parameters; and statements over many rows at once.
//!
//! Names of columns stand here once. Every query that runs in a loop names the index that it counts on; a test asks the
//! planner whether it is used.

use std::sync::{Arc, OnceLock};

macro_rules! execution_columns {
    () => {
        "e.key, e.uid, e.id, e.current, e.workflow, e.version, e.definition_hash, e.input_digest, e.request_key, \
         e.request_content, e.state, e.labels, e.start_time, e.close_time, e.wake_time, e.quarantined"
    };
}
macro_rules! definition_columns {
    () => {
        "d.key, d.name, d.version, d.version_order, d.prerelease, d.hash, d.description, d.json, d.source, d.create_time"
    };
}
macro_rules! session_columns {
    () => {
        "id, worker_id, language, sdk, build, queues, contracts, slots, message_bytes_max, register_time, contact_time, connection"
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
    concat!("SELECT ", execution_columns!(), " FROM executions AS e WHERE e.key = $1");
pub(crate) const EXECUTION_BY_UID: &str =
    concat!("SELECT ", execution_columns!(), " FROM executions AS e WHERE e.uid = $1");
/// Index `executions_current_id`.
pub(crate) const EXECUTION_BY_ID: &str = concat!(
    "SELECT ",
    execution_columns!(),
    " FROM executions AS e WHERE e.namespace = $1 AND e.id = $2 AND e.current = 1"
);
/// Index `executions_request`.
pub(crate) const EXECUTION_BY_REQUEST: &str = concat!(
    "SELECT ",
    execution_columns!(),
    " FROM executions AS e WHERE e.request_key = $3 AND e.namespace = $1 AND e.id = $2 ORDER BY e.key DESC LIMIT 1"
);

pub(crate) const SNAPSHOT: &str = "SELECT seq, format, definition_hash, bytes FROM snapshots WHERE execution_key = $1";
/// Rows from the one that holds event $2 on. Index `history_fence`.
pub(crate) const HISTORY: &str = "SELECT first_seq, last_seq, run, batch_id, format, events FROM history \
     WHERE execution_key = $1 AND last_seq >= $2 AND first_seq >= coalesce(\
       (SELECT max(first_seq) FROM history WHERE execution_key = $1 AND first_seq <= $2), 0) \
     ORDER BY first_seq LIMIT $3";
/// Index `history_fence`.
pub(crate) const NEWEST_NUMBER: &str = "SELECT coalesce((SELECT h.last_seq FROM history AS h WHERE h.execution_key = e.key \
     ORDER BY h.first_seq DESC LIMIT 1), e.floor_seq) FROM executions AS e WHERE e.key = $1";
pub(crate) const HISTORY_BATCH: &str = "SELECT batch_id FROM history WHERE execution_key = $1 AND first_seq = $2";
pub(crate) const KEY_OF_UID: &str = "SELECT key FROM executions WHERE uid = $1";
pub(crate) const PAYLOADS: &str =
    "SELECT digest, min(json) FROM payloads WHERE execution_key = $1 GROUP BY digest ORDER BY digest";
pub(crate) const PAYLOAD: &str = "SELECT digest, json FROM payloads WHERE execution_key = $1 AND digest = $2 LIMIT 1";

pub(crate) const COUNT: &str =
    "SELECT state, CAST(sum(count) AS BIGINT) FROM counters GROUP BY state HAVING sum(count) > 0";
/// Index `executions_wake`.
pub(crate) const DUE: &str = "SELECT key, wake_time FROM executions \
     WHERE wake_time IS NOT NULL AND quarantined IS NULL AND wake_time <= $1 ORDER BY wake_time, key LIMIT $2";
pub(crate) const STILL_DUE: &str = "SELECT key FROM executions \
     WHERE key = $1 AND wake_time IS NOT NULL AND quarantined IS NULL AND wake_time <= $2";
/// Index `ready_pool`.
pub(crate) const IS_WAITING: &str = "SELECT 1 FROM ready WHERE queue = $1 AND contract = $2 AND language = $3 LIMIT 1";
/// Index `ready_pool`.
pub(crate) const READY: &str = "SELECT execution_key, unit, priority, ready_time FROM ready \
     WHERE queue = $1 AND contract = $2 AND language = $3 ORDER BY priority, ready_time, execution_key, unit LIMIT $4";
pub(crate) const QUARANTINE: &str = "UPDATE executions SET quarantined = $2 WHERE key = $1";
pub(crate) const QUARANTINE_READY: &str = "DELETE FROM ready WHERE execution_key = $1";

pub(crate) const DEFINITION_INSERT: &str = "INSERT INTO definitions \
     (namespace, name, version, version_order, prerelease, hash, description, json, source, create_time) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING RETURNING key";
pub(crate) const CONTRACT_INSERT: &str = "INSERT INTO contracts (namespace, task_name, task_version, definition_key) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
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
pub(crate) const CONTRACTS: &str =
    "SELECT task_name, task_version FROM contracts WHERE definition_key = $1 ORDER BY task_name, task_version";
pub(crate) const CONTRACT_VERSIONS: &str =
    "SELECT DISTINCT task_version FROM contracts WHERE namespace = $1 AND task_name = $2 ORDER BY task_version";

pub(crate) const SESSION_INSERT: &str = concat!(
    "INSERT INTO sessions (",
    session_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (id) DO UPDATE SET \
      worker_id = $2, language = $3, sdk = $4, build = $5, queues = $6, contracts = $7, slots = $8, \
      message_bytes_max = $9, register_time = $10, contact_time = $11, connection = $12"
);
pub(crate) const SESSION_RESUME: &str = concat!(
    "UPDATE sessions SET worker_id = $2, language = $3, sdk = $4, build = $5, queues = $6, contracts = $7, slots = $8, \
     message_bytes_max = $9, contact_time = CASE WHEN contact_time < $10 THEN $10 ELSE contact_time END, \
     connection = connection + 1 WHERE id = $1 RETURNING ",
    session_columns!()
);
pub(crate) const SESSION: &str = concat!("SELECT ", session_columns!(), " FROM sessions WHERE id = $1");
pub(crate) const SESSIONS: &str =
    concat!("SELECT ", session_columns!(), " FROM sessions WHERE ($1 IS NULL OR id > $1) ORDER BY id LIMIT $2");
pub(crate) const SESSION_END: &str = "DELETE FROM sessions WHERE id = $1 AND ($2 IS NULL OR contact_time = $2)";

/// Index `held_session`.
pub(crate) const HELD_BY_SESSION: &str = concat!(
    "SELECT ",
    held_columns!(),
    " FROM held AS h WHERE h.session = $1 ORDER BY h.execution_key, h.unit, h.delivery LIMIT $2"
);
pub(crate) const HELD_BY_EXECUTION: &str =
    concat!("SELECT ", held_columns!(), " FROM held AS h WHERE h.execution_key = $1 ORDER BY h.unit, h.delivery");
/// Steps from session to session through the index `held_session`, so that the cost is in the number of sessions.
pub(crate) const HELD_WITHOUT_SESSION: &str = concat!(
    "WITH RECURSIVE holder (id) AS (\
       SELECT min(session) FROM held \
       UNION ALL SELECT (SELECT min(session) FROM held WHERE session > holder.id) FROM holder WHERE holder.id IS NOT NULL) \
     SELECT ",
    held_columns!(),
    " FROM holder CROSS JOIN held AS h \
     WHERE h.session = holder.id AND NOT EXISTS (SELECT 1 FROM sessions AS s WHERE s.id = holder.id) \
     ORDER BY h.session, h.execution_key, h.unit, h.delivery LIMIT $1"
);
/// Index `held_missing`.
pub(crate) const HELD_MISSING: &str = concat!(
    "SELECT ",
    held_columns!(),
    " FROM held AS h WHERE h.missing_since IS NOT NULL AND h.missing_since < $1 \
     ORDER BY h.missing_since, h.execution_key, h.unit, h.delivery LIMIT $2"
);
/// Index `held_beat`.
pub(crate) const HELD_OVERDUE: &str = concat!(
    "SELECT ",
    held_columns!(),
    " FROM held AS h WHERE h.heartbeat_timeout IS NOT NULL AND h.beat_time + h.heartbeat_timeout <= $1 \
     ORDER BY h.beat_time + h.heartbeat_timeout, h.execution_key, h.unit, h.delivery LIMIT $2"
);
pub(crate) const NODE_WRITE: &str = "INSERT INTO nodes (id, slot, now, level) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (id) DO UPDATE SET now = CASE WHEN nodes.now < $3 THEN $3 ELSE nodes.now END, level = $4";
pub(crate) const NODES: &str = "SELECT id, now, level FROM nodes ORDER BY id";

/// Most rows of one statement.
pub(crate) const ROWS_MAX: usize = 256;

/// A statement over a list of VALUES, made for 1, 2, 4 … [`ROWS_MAX`] rows, so that few texts exist and each stays
/// prepared. Fewer rows are filled up with nulls, which the statement must pass over.
pub(crate) struct Rows {
    before: &'static str,
    columns: usize,
    after: &'static str,
    texts: [OnceLock<Arc<str>>; ROWS_MAX.ilog2() as usize + 1],
}

impl Rows {
    /// `before`, the list in parentheses, `after`; a null in the first column is a row to pass over.
    pub(crate) const fn new(before: &'static str, columns: usize, after: &'static str) -> Self {
        Self { before, columns, after, texts: [const { OnceLock::new() }; ROWS_MAX.ilog2() as usize + 1] }
    }

    /// The text for so many rows (at most [`ROWS_MAX`]), and for how many values it has places.
    pub(crate) fn text(&self, rows: usize) -> (Arc<str>, usize) {
        let size = rows.next_power_of_two();
        let text = self.texts[size.ilog2() as usize].get_or_init(|| {
            let row = format!("({})", vec!["?"; self.columns].join(","));
            format!("{}(VALUES {}){}", self.before, vec![row; size].join(","), self.after).into()
        });
        (text.clone(), size * self.columns)
    }
}
