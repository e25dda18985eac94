//! Lists executions, newest start first: walks one index, in its order, and looks each entry up in those of the other
//! conditions.
//!
//! | condition | its index | so many lookups an entry |
//! | --- | --- | --- |
//! | a label | `labels_once` | one |
//! | a workflow and states | `executions_workflow_state`, one walk a state, merged | one |
//! | a workflow | `executions_workflow` | one |
//! | states | `executions_state`, one walk a state, merged | one |
//! | nothing, or all states | `executions_start` | – |
//!
//! Each of them ends with (`start_time`, `key`), so a page begins where the one before ended (a keyset, no offset). Rows are
//! read for the page alone. What is being deleted has no labels any more, and its rows are passed over.
//!
//! # Design
//! Without labels, every entry of the walk belongs to the list. With a label and something else, a million entries may
//! have the one and none of them the other, and no index can tell: labels are many, and what an execution's state is changes. So
//! such a walk is bounded, and the bound says which index it takes: each is asked for its entry so many places further on, and
//! **the one that reaches back furthest in time is walked, down to that entry and no further**. It has the fewest entries there,
//! so whoever asks for a label that half of all have and a state that few are in walks that state, or the label in the weeks in
//! which it was rare, whatever the order of the conditions. A page that is not full by then says where it stopped; the next one
//! chooses again. To reach n entries back is a walk of the index alone, some 0.1 µs an entry; a lookup takes 2 µs.

use super::executions::limit;
use super::row::execution_row;
use super::{Connection, Dialect, Row as _, Value, Values, text::EXECUTION_COLUMNS};
use crate::domain::Timestamp;
use crate::store::{ExecutionKey, ExecutionState, ListCursor, ListFilter, ListPage, NAMESPACE};
use sqlx::AssertSqlSafe;

/// Lookups of one walk at most, which take some 1 ms, and ten times as long on a machine that is busy with a database that has
/// not been vacuumed for long.
const LOOKUPS_MAX: usize = 400;

pub(crate) async fn list<C: Connection>(
    connection: &mut C,
    filter: &ListFilter,
    after: Option<ListCursor>,
    most: usize,
) -> sqlx::Result<ListPage> {
    // No text that is stored has this character, and PostgreSQL does not even let it be asked for.
    let labels = filter.labels.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]);
    if most == 0 || labels.chain(filter.workflow.as_deref()).any(|text| text.contains('\0')) {
        return Ok(ListPage::default());
    }
    let search = Search::new(C::DIALECT, filter, after);
    let (walk, end) = search.choose(connection).await?;
    // The texts are put together from constant parts.
    let (text, values) = search.page(walk, end, most.saturating_add(1));
    let rows = connection.rows(AssertSqlSafe(text), values).await?;
    let rows = rows.iter().map(execution_row).collect::<sqlx::Result<_>>()?;
    Ok(ListPage::cut(rows, most, end))
}

/// Which index is walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Walk {
    /// That of the workflow and the states.
    Rows,
    /// That of the labels, at this one of the filter's.
    Label(usize),
}

/// A list that is asked for.
pub(crate) struct Search<'a> {
    dialect: Dialect,
    filter: &'a ListFilter,
    /// In order and without repeats; empty for any.
    states: Vec<ExecutionState>,
    after: Option<ListCursor>,
}

impl<'a> Search<'a> {
    pub(crate) fn new(dialect: Dialect, filter: &'a ListFilter, after: Option<ListCursor>) -> Self {
        let mut states = filter.states.clone();
        states.sort_unstable();
        states.dedup();
        if states.len() == ExecutionState::ALL.len() {
            states.clear();
        }
        Self { dialect, filter, states, after }
    }

    /// Every walk that finds the whole list.
    pub(crate) fn walks(&self) -> Vec<Walk> {
        let labels = (0..self.filter.labels.len()).map(Walk::Label);
        let rows = (self.filter.labels.is_empty() || self.asks_rows()).then_some(Walk::Rows);
        labels.chain(rows).collect()
    }

    /// Chooses the walk, and the entry with which it ends; none for the end of the index.
    async fn choose<C: Connection>(&self, connection: &mut C) -> sqlx::Result<(Walk, Option<ListCursor>)> {
        let walks = self.walks();
        if let [only] = walks[..] {
            return Ok((only, None));
        }
        let (text, values) = self.reach(&walks);
        let mut ends: Vec<Option<ListCursor>> = vec![None; walks.len()];
        for row in connection.rows(AssertSqlSafe(text), values).await? {
            let place = usize::try_from(row.integer(0)?).expect("it is the number of a walk");
            let start_time = Timestamp::from_micros(row.integer(1)?);
            // Where several walks are merged, none goes further than the first of them may.
            ends[place] = ends[place].max(Some(ListCursor { start_time, key: ExecutionKey(row.integer(2)?) }));
        }
        // One that comes to the end of its index reaches furthest.
        let furthest = walks.into_iter().zip(ends).min_by_key(|(_, end)| *end);
        Ok(furthest.expect("a list has a walk"))
    }

    /// Text and values of the statement that answers how far each walk reaches: its number, and the last entry that it may
    /// take, if there are so many.
    pub(crate) fn reach(&self, walks: &[Walk]) -> (String, Values) {
        let mut statement = Statement::new();
        let lookups = self.filter.labels.len() - 1 + usize::from(self.asks_rows());
        let entries = (LOOKUPS_MAX / (lookups * self.states.len().max(1))).max(1);
        let skipped = statement.place(limit(entries - 1));
        for (place, walk) in walks.iter().enumerate() {
            let states = if *walk == Walk::Rows { self.arms() } else { vec![None] };
            for (arm, state) in states.into_iter().enumerate() {
                statement.add(if place + arm > 0 { " UNION ALL " } else { "" });
                statement.add(&format!("SELECT CAST({place} AS BIGINT), p.start_time, p.key FROM ("));
                match walk {
                    Walk::Rows => {
                        statement.add("SELECT e.start_time, e.key");
                        self.rows(&mut statement, state, None);
                        statement.add(" ORDER BY e.start_time DESC, e.key DESC");
                    }
                    Walk::Label(label) => {
                        statement.add("SELECT l.start_time, l.execution_key AS key");
                        self.label(&mut statement, *label, None);
                        statement.add(" ORDER BY l.start_time DESC, l.execution_key DESC");
                    }
                }
                statement.add(&format!(" LIMIT 1 OFFSET {skipped}) AS p"));
            }
        }
        (statement.text, statement.values)
    }

    /// Text and values of the statement that answers the rows of a walk; the text depends on the shape of the filter alone.
    pub(crate) fn page(&self, walk: Walk, end: Option<ListCursor>, most: usize) -> (String, Values) {
        let mut statement = Statement::new();
        let most = statement.place(limit(most));
        let order = match walk {
            Walk::Label(_) => "found.started DESC, found.execution_key DESC",
            Walk::Rows => "e.start_time DESC, e.key DESC",
        };
        let arms = self.arms();
        // PostgreSQL brings the arms into order one by one before it merges them; SQLite merges them as it walks.
        let (open, close) = match self.dialect {
            Dialect::Postgres if arms.len() > 1 => ("(", format!(" ORDER BY {order} LIMIT {most})")),
            Dialect::Postgres | Dialect::Sqlite => ("", String::new()),
        };
        for (index, state) in arms.iter().enumerate() {
            statement.add(if index > 0 { " UNION ALL " } else { "" });
            statement.add(open);
            match walk {
                Walk::Rows => self.page_of_rows(&mut statement, *state, end),
                Walk::Label(label) => self.page_of_label(&mut statement, label, *state, end, &most),
            }
            statement.add(&close);
        }
        // The order of a UNION is told by its result columns.
        let order = if arms.len() > 1 { "start_time DESC, key DESC" } else { order };
        statement.add(&format!(" ORDER BY {order} LIMIT {most}"));
        (statement.text, statement.values)
    }

    /// Whether rows must have more than labels and times.
    fn asks_rows(&self) -> bool {
        self.filter.workflow.is_some() || !self.states.is_empty()
    }

    /// The states one by one, or one that stands for all.
    fn arms(&self) -> Vec<Option<ExecutionState>> {
        if self.states.is_empty() { vec![None] } else { self.states.iter().copied().map(Some).collect() }
    }

    /// The index of `executions` that has what rows must have.
    fn index(&self) -> &'static str {
        match (self.filter.workflow.is_some(), !self.states.is_empty()) {
            (true, true) => "executions_workflow_state",
            (true, false) => "executions_workflow",
            (false, true) => "executions_state",
            (false, false) => "executions_start",
        }
    }

    /// A page of one state or of all, from an index of `executions`.
    fn page_of_rows(&self, statement: &mut Statement, state: Option<ExecutionState>, end: Option<ListCursor>) {
        statement.add(&format!("SELECT {EXECUTION_COLUMNS}"));
        self.rows(statement, state, end);
        statement.add(" AND e.delete_time IS NULL");
        for label in 0..self.filter.labels.len() {
            self.has_label(statement, label, "e.start_time", "e.key");
        }
    }

    /// A page of one state or of all, from the entries of a label. It is found before any row is read.
    fn page_of_label(
        &self,
        statement: &mut Statement,
        label: usize,
        state: Option<ExecutionState>,
        end: Option<ListCursor>,
        most: &str,
    ) {
        statement.add(&format!("SELECT {EXECUTION_COLUMNS} FROM (SELECT l.start_time AS started, l.execution_key"));
        self.label(statement, label, end);
        for other in (0..self.filter.labels.len()).filter(|other| *other != label) {
            self.has_label(statement, other, "l.start_time", "l.execution_key");
        }
        if self.asks_rows() {
            // A range of one entry, and no LIMIT: so PostgreSQL takes the index that has all columns, and does not look up the
            // row by its key. And no EXISTS, here and below, of which it would make a join: that goes entry by entry only if statistics
            // tell it to.
            statement.add(" AND (SELECT 1");
            self.matching(statement, "s", state);
            statement.add(
                " AND (s.start_time, s.key) >= (l.start_time, l.execution_key) \
                 AND (s.start_time, s.key) <= (l.start_time, l.execution_key)) IS NOT NULL",
            );
        }
        statement.add(&format!(
            " ORDER BY l.start_time DESC, l.execution_key DESC LIMIT {most}) AS found \
             CROSS JOIN executions AS e WHERE e.key = found.execution_key"
        ));
    }

    /// The entries of an index of `executions`, from where the page begins to where the walk ends.
    fn rows(&self, statement: &mut Statement, state: Option<ExecutionState>, end: Option<ListCursor>) {
        self.matching(statement, "e", state);
        self.range(statement, "e.start_time", "e.key", end);
    }

    fn matching(&self, statement: &mut Statement, name: &str, state: Option<ExecutionState>) {
        let (index, namespace) = (self.dialect.indexed_by(self.index()), statement.place(NAMESPACE));
        statement.add(&format!(" FROM executions AS {name}{index} WHERE {name}.namespace = {namespace}"));
        if let Some(workflow) = &self.filter.workflow {
            statement.and(&format!("{name}.workflow ="), workflow);
        }
        if let Some(state) = state {
            statement.and(&format!("{name}.state ="), state as i64);
        }
    }

    /// The entries of a label, from where the page begins to where the walk ends.
    fn label(&self, statement: &mut Statement, label: usize, end: Option<ListCursor>) {
        let (key, value) = &self.filter.labels[label];
        let namespace = statement.place(NAMESPACE);
        statement.add(&format!(" FROM labels AS l WHERE l.namespace = {namespace}"));
        statement.and("l.key =", key.as_str());
        statement.and("l.value =", value.as_str());
        self.range(statement, "l.start_time", "l.execution_key", end);
    }

    fn range(&self, statement: &mut Statement, time: &str, key: &str, end: Option<ListCursor>) {
        if let Some(from) = self.filter.start_from {
            statement.and(&format!("{time} >="), from.as_micros());
        }
        if let Some(until) = self.filter.start_until {
            statement.and(&format!("{time} <"), until.as_micros());
        }
        for (compared, cursor) in [("<", self.after), (">=", end)] {
            if let Some(cursor) = cursor {
                let (at, at_key) = (statement.place(cursor.start_time.as_micros()), statement.place(cursor.key.0));
                statement.add(&format!(" AND ({time}, {key}) {compared} ({at}, {at_key})"));
            }
        }
    }

    fn has_label(&self, statement: &mut Statement, label: usize, time: &str, key: &str) {
        let (label, value) = &self.filter.labels[label];
        let (namespace, label, value) =
            (statement.place(NAMESPACE), statement.place(label.as_str()), statement.place(value.as_str()));
        statement.add(&format!(
            " AND (SELECT 1 FROM labels AS o WHERE o.namespace = {namespace} AND o.key = {label} \
             AND o.value = {value} AND o.start_time = {time} AND o.execution_key = {key} LIMIT 1) IS NOT NULL"
        ));
    }
}

/// A text that grows, with the values of its places.
struct Statement {
    text: String,
    values: Values,
}

impl Statement {
    fn new() -> Self {
        Self { text: String::new(), values: Values::default() }
    }

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
}
