//! Names of metrics, each with its unit and meaning.

/// Appends of one commit batch; histogram.
pub const COMMIT_BATCH_APPENDS: &str = "orbit_commit_batch_appends";
/// Seconds from when a timer was due to when it fired; histogram.
pub const TIMER_LAG: &str = "orbit_timer_lag_seconds";
/// Executions that were read from the store to be decided on; counter.
pub const EXECUTIONS_LOADED: &str = "orbit_executions_loaded_total";
/// Sessions that were lost; counter.
pub const SESSIONS_LOST: &str = "orbit_sessions_lost_total";
/// Events that were committed, by kind; counter.
pub const EVENTS: &str = "orbit_events_total";
