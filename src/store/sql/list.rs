//! Lists executions, newest start first: each filter walks the one index that leaves the least to pass over.
//!
//! | filter | walks |
//! | --- | --- |
//! | states that few executions have (by the counters) | `executions_state`, one walk a state, merged |
//! | a label | `labels_once` of the first label; the others are looked up |
//! | a workflow | `executions_workflow` |
//! | other states | `executions_state` |
//! | nothing, or all states | `executions_start` |
//!
//! Each of them ends with (`start_time`, `key`), so a page begins where the one before ended (a keyset, no offset), and
//! what else is asked is checked row by row.

use super::executions::{count, limit};
use super::row::execution_row;
use super::{Connection, Dialect, Value, Values, text::EXECUTION_COLUMNS};
use crate::store::{ExecutionRow, ExecutionState, ListCursor, ListFilter, NAMESPACE};
use sqlx::AssertSqlSafe;
use std::{collections::BTreeMap, fmt::Write as _};

/// So many executions are walked over in some 20 ms, so states that have fewer are the best way in.
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
    State,
    Label,
}

fn walk(filter: &ListFilter, states: &[ExecutionState], counts: &BTreeMap<ExecutionState, u64>) -> Walk {
    let some_states = !states.is_empty();
    let in_states: u64 = states.iter().filter_map(|state| counts.get(state)).sum();
    if some_states && in_states <= STATE_IS_RARE {
        Walk::State
    } else if !filter.labels.is_empty() {
        Walk::Label
    } else if filter.workflow.is_some() {
        Walk::Workflow
    } else if some_states {
        Walk::State
    } else {
        Walk::Start
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
    let walk = walk(filter, &states, counts);
    let mut statement = Statement { dialect, text: String::new(), values: Values::default() };
    let limit = statement.place(limit(most));
    if walk == Walk::State && states.len() > 1 {
        // PostgreSQL brings the arms into order one by one before it merges them; SQLite merges them as it walks.
        let (open, close) = match dialect {
            Dialect::Sqlite => ("", String::new()),
            Dialect::Postgres => ("(", format!(" ORDER BY e.start_time DESC, e.key DESC LIMIT {limit})")),
        };
        for (index, state) in states.iter().enumerate() {
            statement.text.push_str(if index > 0 { " UNION ALL " } else { "" });
            statement.text.push_str(open);
            statement.arm(walk, filter, after, std::slice::from_ref(state));
            statement.text.push_str(&close);
        }
    } else {
        statement.arm(walk, filter, after, &states);
    }
    let order = match walk {
        Walk::Label => "l.start_time DESC, l.execution_key DESC",
        // The order of a UNION is told by its result columns.
        Walk::State if states.len() > 1 => "start_time DESC, key DESC",
        Walk::Start | Walk::Workflow | Walk::State => "e.start_time DESC, e.key DESC",
    };
    write!(statement.text, " ORDER BY {order} LIMIT {limit}").expect("a string takes all text");
    (statement.text, statement.values)
}

struct Statement {
    dialect: Dialect,
    text: String,
    values: Values,
}

impl Statement {
    fn place(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value);
        format!("${}", self.values.len())
    }

    fn and(&mut self, left: &str, value: impl Into<Value>) {
        let place = self.place(value);
        write!(self.text, " AND {left} {place}").expect("a string takes all text");
    }

    fn arm(&mut self, walk: Walk, filter: &ListFilter, after: Option<ListCursor>, states: &[ExecutionState]) {
        let executions = |index| format!("executions AS e{}", self.dialect.indexed_by(index));
        let (from, namespace, time, key) = match walk {
            Walk::Start => (executions("executions_start"), "e.namespace", "e.start_time", "e.key"),
            Walk::Workflow => (executions("executions_workflow"), "e.namespace", "e.start_time", "e.key"),
            Walk::State => (executions("executions_state"), "e.namespace", "e.start_time", "e.key"),
            // SQLite takes the tables of a CROSS JOIN in this order.
            Walk::Label => {
                ("labels AS l CROSS JOIN executions AS e".to_owned(), "l.namespace", "l.start_time", "l.execution_key")
            }
        };
        let namespace_place = self.place(NAMESPACE);
        write!(self.text, "SELECT {EXECUTION_COLUMNS} FROM {from} WHERE {namespace} = {namespace_place}")
            .expect("a string takes all text");
        let mut labels = filter.labels.iter();
        if walk == Walk::Label {
            self.text.push_str(" AND e.key = l.execution_key");
        }
        if walk == Walk::Label
            && let Some((label, value)) = labels.next()
        {
            self.and("l.key =", label.as_str());
            self.and("l.value =", value.as_str());
        }
        // A column of an index that is not walked is written so that no index can answer for it: PostgreSQL, which knows
        // averages alone, would else walk that one.
        let state = if walk == Walk::State { "e.state" } else { "e.state + 0" };
        match states {
            [] => {}
            [one] => self.and(&format!("{state} ="), *one as i64),
            several => {
                let numbers: Vec<String> = several.iter().map(|state| (*state as i64).to_string()).collect();
                write!(self.text, " AND {state} IN ({})", numbers.join(", ")).expect("a string takes all text");
            }
        }
        if let Some(workflow) = &filter.workflow {
            self.and(if walk == Walk::Workflow { "e.workflow =" } else { "e.workflow || '' =" }, workflow);
        }
        if let Some(from) = filter.start_from {
            self.and(&format!("{time} >="), from.as_micros());
        }
        if let Some(until) = filter.start_until {
            self.and(&format!("{time} <"), until.as_micros());
        }
        if let Some(cursor) = after {
            let (at, after_key) = (self.place(cursor.start_time.as_micros()), self.place(cursor.key.0));
            write!(self.text, " AND ({time}, {key}) < ({at}, {after_key})").expect("a string takes all text");
        }
        for (label, value) in labels {
            let (label, value) = (self.place(label.as_str()), self.place(value.as_str()));
            write!(
                self.text,
                " AND EXISTS (SELECT 1 FROM labels AS o WHERE o.namespace = {namespace_place} AND o.key = {label} \
                 AND o.value = {value} AND o.start_time = e.start_time AND o.execution_key = e.key)"
            )
            .expect("a string takes all text");
        }
    }
}
