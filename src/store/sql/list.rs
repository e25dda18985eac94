//! Lists executions, newest start first: each filter walks the one index that leaves the least to pass over.
//!
//! | filter | walks |
//! | --- | --- |
//! | a label, unless few executions are in the states (by the counters) | `labels_once` of the first label |
//! | a workflow and states | `executions_workflow_state`, one walk a state, merged |
//! | a workflow | `executions_workflow` |
//! | states | `executions_state`, one walk a state, merged |
//! | nothing, or all states | `executions_start` |
//!
//! Each of them ends with (`start_time`, `key`), so a page begins where the one before ended (a keyset, no offset). What else
//! is asked is looked up entry by entry in the index that has it; rows are read for the page alone, or where only the row
//! can tell.

use super::executions::{count, limit};
use super::row::execution_row;
use super::{Connection, Dialect, Value, Values, text::EXECUTION_COLUMNS};
use crate::store::{ExecutionRow, ExecutionState, ListCursor, ListFilter, NAMESPACE};
use sqlx::AssertSqlSafe;
use std::collections::BTreeMap;

/// So many executions are walked over in some 20 ms, so states that have fewer are a better way in than a label.
const STATE_IS_RARE: u64 = 10_000;

pub(crate) async fn list<C: Connection>(
    connection: &mut C,
    filter: &ListFilter,
    after: Option<ListCursor>,
    most: usize,
) -> sqlx::Result<Vec<ExecutionRow>> {
    // No text that is stored has this character, and PostgreSQL does not even let it be asked for.
    let labels = filter.labels.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]);
    if labels.chain(filter.workflow.as_deref()).any(|text| text.contains('\0')) {
        return Ok(Vec::new());
    }
    // They only choose the way, so they need not be of the same moment as the page.
    let counts = if filter.states.is_empty() { BTreeMap::new() } else { count(connection).await? };
    let (text, values) = statement(C::DIALECT, filter, &counts, after, most);
    // The text was put together from constant parts.
    connection.rows(AssertSqlSafe(text), values).await?.iter().map(execution_row).collect()
}

/// The index that a list walks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Walk {
    Start,
    Workflow,
    WorkflowState,
    State,
    Label,
}

impl Walk {
    fn of(filter: &ListFilter, states: &[ExecutionState], counts: &BTreeMap<ExecutionState, u64>) -> Self {
        let in_states: u64 = states.iter().filter_map(|state| counts.get(state)).sum();
        let few = !states.is_empty() && in_states <= STATE_IS_RARE;
        if !filter.labels.is_empty() && !few {
            return Self::Label;
        }
        Self::of_rows(filter.workflow.is_some(), !states.is_empty())
    }

    /// The index of `executions` that has these.
    fn of_rows(workflow: bool, states: bool) -> Self {
        match (workflow, states) {
            (true, true) => Self::WorkflowState,
            (true, false) => Self::Workflow,
            (false, true) => Self::State,
            (false, false) => Self::Start,
        }
    }

    fn index(self) -> &'static str {
        match self {
            Self::Start => "executions_start",
            Self::Workflow => "executions_workflow",
            Self::WorkflowState => "executions_workflow_state",
            Self::State => "executions_state",
            Self::Label => "labels_once",
        }
    }
}

/// Text and values of the list's statement; the text depends on the shape of the filter alone.
pub(crate) fn statement(
    dialect: Dialect,
    filter: &ListFilter,
    counts: &BTreeMap<ExecutionState, u64>,
    after: Option<ListCursor>,
    most: usize,
) -> (String, Values) {
    let mut states = filter.states.clone();
    states.sort_unstable();
    states.dedup();
    if states.len() == ExecutionState::ALL.len() {
        states.clear();
    }
    let walk = Walk::of(filter, &states, counts);
    let mut statement = Statement { dialect, text: String::new(), values: Values::default() };
    let limit = statement.place(limit(most));
    let order = match walk {
        Walk::Label => "found.started DESC, found.execution_key DESC",
        Walk::Start | Walk::Workflow | Walk::WorkflowState | Walk::State => "e.start_time DESC, e.key DESC",
    };
    if states.len() > 1 {
        // PostgreSQL brings the arms into order one by one before it merges them; SQLite merges them as it walks.
        let (open, close) = match dialect {
            Dialect::Sqlite => ("", String::new()),
            Dialect::Postgres => ("(", format!(" ORDER BY {order} LIMIT {limit})")),
        };
        for (index, state) in states.iter().enumerate() {
            statement.add(if index > 0 { " UNION ALL " } else { "" });
            statement.add(open);
            statement.arm(walk, filter, Some(*state), after, &limit);
            statement.add(&close);
        }
        // The order of a UNION is told by its result columns.
        statement.add(&format!(" ORDER BY start_time DESC, key DESC LIMIT {limit}"));
    } else {
        statement.arm(walk, filter, states.first().copied(), after, &limit);
        statement.add(&format!(" ORDER BY {order} LIMIT {limit}"));
    }
    (statement.text, statement.values)
}

struct Statement {
    dialect: Dialect,
    text: String,
    values: Values,
}

impl Statement {
    fn add(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn place(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value);
        format!("${}", self.values.len())
    }

    fn and(&mut self, left: &str, value: impl Into<Value>) {
        let place = self.place(value);
        self.add(&format!(" AND {left} {place}"));
    }

    /// Of one state or of all.
    fn arm(
        &mut self,
        walk: Walk,
        filter: &ListFilter,
        state: Option<ExecutionState>,
        after: Option<ListCursor>,
        limit: &str,
    ) {
        match walk {
            Walk::Label => self.of_label(filter, state, after, limit),
            Walk::Start | Walk::Workflow | Walk::WorkflowState | Walk::State => {
                self.of_rows(walk, filter, state, after);
            }
        }
    }

    /// Walks an index of `executions`.
    fn of_rows(&mut self, walk: Walk, filter: &ListFilter, state: Option<ExecutionState>, after: Option<ListCursor>) {
        let (index, namespace) = (self.dialect.indexed_by(walk.index()), self.place(NAMESPACE));
        self.add(&format!("SELECT {EXECUTION_COLUMNS} FROM executions AS e{index} WHERE e.namespace = {namespace}"));
        if let Some(workflow) = &filter.workflow {
            self.and("e.workflow =", workflow);
        }
        if let Some(state) = state {
            self.and("e.state =", state as i64);
        }
        self.times("e.start_time", "e.key", filter, after);
        self.labels(&filter.labels, "e.start_time", "e.key");
    }

    /// Walks the entries of the first label. A page of them is found before any row is read.
    fn of_label(&mut self, filter: &ListFilter, state: Option<ExecutionState>, after: Option<ListCursor>, limit: &str) {
        let namespace = self.place(NAMESPACE);
        self.add(&format!(
            "SELECT {EXECUTION_COLUMNS} FROM (SELECT l.start_time AS started, l.execution_key FROM labels AS l \
             WHERE l.namespace = {namespace}"
        ));
        if let Some(((label, value), others)) = filter.labels.split_first() {
            self.and("l.key =", label.as_str());
            self.and("l.value =", value.as_str());
            self.labels(others, "l.start_time", "l.execution_key");
        }
        self.times("l.start_time", "l.execution_key", filter, after);
        if filter.workflow.is_some() || state.is_some() {
            let index = Walk::of_rows(filter.workflow.is_some(), state.is_some()).index();
            let (index, namespace) = (self.dialect.indexed_by(index), self.place(NAMESPACE));
            // A range of one entry, and no LIMIT: so PostgreSQL takes the index that has all columns, and does not look up the
            // row by its key. And no EXISTS, here and below, of which it would make a join: that goes entry by entry only if statistics
            // tell it to.
            self.add(&format!(
                " AND (SELECT 1 FROM executions AS s{index} WHERE s.namespace = {namespace} \
                 AND (s.start_time, s.key) >= (l.start_time, l.execution_key) \
                 AND (s.start_time, s.key) <= (l.start_time, l.execution_key)"
            ));
            if let Some(workflow) = &filter.workflow {
                self.and("s.workflow =", workflow);
            }
            if let Some(state) = state {
                self.and("s.state =", state as i64);
            }
            self.add(") IS NOT NULL");
        }
        self.add(&format!(
            " ORDER BY l.start_time DESC, l.execution_key DESC LIMIT {limit}) AS found \
             CROSS JOIN executions AS e WHERE e.key = found.execution_key"
        ));
    }

    fn times(&mut self, time: &str, key: &str, filter: &ListFilter, after: Option<ListCursor>) {
        if let Some(from) = filter.start_from {
            self.and(&format!("{time} >="), from.as_micros());
        }
        if let Some(until) = filter.start_until {
            self.and(&format!("{time} <"), until.as_micros());
        }
        if let Some(cursor) = after {
            let (at, after_key) = (self.place(cursor.start_time.as_micros()), self.place(cursor.key.0));
            self.add(&format!(" AND ({time}, {key}) < ({at}, {after_key})"));
        }
    }

    fn labels(&mut self, labels: &[(String, String)], time: &str, key: &str) {
        for (label, value) in labels {
            let (namespace, label, value) =
                (self.place(NAMESPACE), self.place(label.as_str()), self.place(value.as_str()));
            self.add(&format!(
                " AND (SELECT 1 FROM labels AS o WHERE o.namespace = {namespace} AND o.key = {label} \
                 AND o.value = {value} AND o.start_time = {time} AND o.execution_key = {key} LIMIT 1) IS NOT NULL"
            ));
        }
    }
}
