//! The statement that writes a batch: put together from the parts that the batch needs, each with its lists of values.
//!
//! In order: new executions → history, of those and of the ones that are there, each row only if its number is the next one
//! → everything else, only for the appends whose history row came back. A part that a batch does not need is not in its
//! statement, so there are few texts, and the most common one (events only) is short. Each stays prepared.
//!
//! # Design
//! - In the statement an append is named by `n`: the key of its execution, or for a new one −1, −2 … by its place among them.
//! - Rows are written in one order (ids, then keys, then counters by state), so that nodes which write the same executions wait
//!   for each other but not in a circle. The sort before `history` also holds the new executions complete before the first row
//!   of it. New executions get their keys before they are sorted.
//! - All parts see the database as it was before the statement. So no part may look for a row that another one writes.
//! - What each part changed is counted in the answer.
//! - Every way to a row leads through a key, by the form of the text: a plan is made once and lives long, and a planner that
//!   sees empty tables would rather read them whole.

use super::connection::Values;
use crate::domain::Timestamp;
use crate::store::{Append, Change, EVENT_FORMAT, NAMESPACE, NewExecution, ReadyUnit, Target};
use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, OnceLock},
};

/// In the first column of an answer: the second has the `n` of an append that was written, the third its execution. Else the
/// first column has a [`Change`], and the second how many rows changed so.
pub(super) const WRITTEN: i64 = -1;

/// A part of the statement. The numbers are bits.
#[derive(Clone, Copy)]
#[repr(u16)]
enum Part {
    Existing = 1,
    New = 2,
    Labels = 4,
    ReadyRemoved = 8,
    ReadyAdded = 16,
    Rows = 32,
    Counters = 64,
    Snapshots = 128,
    Payloads = 256,
    Runs = 512,
    Deletions = 1024,
}

const SHAPES: usize = 2048;

static TEXTS: [OnceLock<Arc<str>>; SHAPES] = [const { OnceLock::new() }; SHAPES];

/// Appends in the order in which they are written: to executions that are there, by key; new ones as they came, so that their
/// keys tell who came first.
pub(super) struct Ordered<'a> {
    existing: Vec<(i64, &'a Append)>,
    new: Vec<(&'a NewExecution, &'a Append)>,
    /// The `n` of each, as they came.
    names: Vec<i64>,
}

impl<'a> Ordered<'a> {
    /// Sorts a batch.
    pub(super) fn of(appends: &[&'a Append]) -> Self {
        let mut names = vec![0; appends.len()];
        let (mut existing, mut new) = (Vec::new(), Vec::new());
        for (place, append) in appends.iter().enumerate() {
            match &append.target {
                Target::Existing(key) => {
                    names[place] = key.0;
                    existing.push((key.0, *append));
                }
                Target::New(_) | Target::Replacing(_) => {
                    new.extend(append.new_execution().map(|execution| (execution, *append)));
                    names[place] = -i64::try_from(new.len()).expect("a batch is not so long");
                }
            }
        }
        existing.sort_unstable_by_key(|(key, _)| *key);
        Self { existing, new, names }
    }

    /// The `n` of each append, in the order in which they came.
    pub(super) fn names(&self) -> &[i64] {
        &self.names
    }

    /// Each append with its `n`.
    fn all(&self) -> impl Iterator<Item = (i64, &'a Append)> {
        let new = self.new.iter().zip(1..).map(|((_, append), place): (_, i64)| (-place, *append));
        self.existing.iter().copied().chain(new)
    }

    /// The statement and its values.
    pub(super) fn statement(&self, slot: i64, committer: i64) -> (SqlStr, Values) {
        let mut writing = Writing { parts: 0, values: Values::default() };
        self.put_existing(&mut writing);
        self.put_new(&mut writing);
        self.put_labels(&mut writing);
        self.put_ready(&mut writing);
        self.put_rows(&mut writing);
        self.put_counters(&mut writing, slot, committer);
        self.put_snapshots(&mut writing);
        self.put_payloads(&mut writing);
        self.put_runs(&mut writing);
        self.put_deletions(&mut writing);
        let text = TEXTS[usize::from(writing.parts)].get_or_init(|| text(writing.parts).into()).clone();
        (AssertSqlSafe(text).into_sql_str(), writing.values)
    }

    fn put_existing(&self, writing: &mut Writing) {
        let all = &self.existing;
        if writing.needs(Part::Existing, all) {
            writing.list(all, |(key, _)| *key);
            writing.list(all, |(_, append)| number(append.first_number));
            writing.list(all, |(_, append)| number(append.last_number));
            writing.list(all, |(_, append)| i64::from(append.run));
            writing.list(all, |(_, append)| append.batch_id.as_bytes().as_slice());
            writing.list(all, |(_, append)| &*append.events);
        }
    }

    fn put_new(&self, writing: &mut Writing) {
        let all = &self.new;
        if writing.needs(Part::New, all) {
            let labels: Vec<String> = all
                .iter()
                .map(|(new, _)| serde_json::to_string(&new.labels).expect("a map of texts is JSON"))
                .collect();
            writing.list(all, |(new, _)| new.uid.0.as_bytes().as_slice());
            writing.list(all, |(new, _)| &*new.id);
            writing.list(all, |(new, _)| &*new.workflow);
            writing.list(all, |(new, _)| &*new.version);
            writing.list(all, |(new, _)| new.definition_hash.as_slice());
            writing.list(all, |(new, _)| new.input_digest.as_slice());
            writing.list(all, |(new, _)| new.request.as_ref().map(|request| request.key.as_slice()));
            writing.list(all, |(new, _)| new.request.as_ref().map(|request| request.content.as_slice()));
            writing.list(all, |(new, _)| new.state as i64);
            writing.list(&labels, String::as_str);
            writing.list(all, |(new, _)| new.start_time.as_micros());
            writing.list(all, |(new, _)| new.close_time.map(Timestamp::as_micros));
            writing.list(all, |(_, append)| append.wake_set().flatten().map(Timestamp::as_micros));
            writing.list(all, |(new, _)| new.schedule.as_ref().map(|uid| uid.as_bytes().as_slice()));
            writing.list(all, |(_, append)| number(append.last_number));
            writing.list(all, |(_, append)| i64::from(append.run));
            writing.list(all, |(_, append)| append.batch_id.as_bytes().as_slice());
            writing.list(all, |(_, append)| &*append.events);
        }
    }

    fn put_labels(&self, writing: &mut Writing) {
        let new = self.new.iter().zip(1..).map(|((new, _), place): (_, i64)| (-place, *new));
        let labels: Vec<_> = new
            .flat_map(|(n, new)| new.labels.iter().map(move |(key, value)| (n, key, value, new.start_time)))
            .collect();
        if writing.needs(Part::Labels, &labels) {
            writing.list(&labels, |(n, ..)| *n);
            writing.list(&labels, |(_, key, ..)| key.as_str());
            writing.list(&labels, |(_, _, value, _)| value.as_str());
            writing.list(&labels, |(.., start_time)| start_time.as_micros());
        }
    }

    fn put_ready(&self, writing: &mut Writing) {
        // A unit that is removed and added is only written over; one that is added twice counts with the last.
        let mut added: BTreeMap<(i64, &str), &ReadyUnit> = BTreeMap::new();
        for (n, append) in self.all() {
            added.extend(append.ready_added.iter().map(|unit| ((n, &*unit.unit), unit)));
        }
        let removed: Vec<(i64, &str)> = self
            .all()
            .flat_map(|(n, append)| append.ready_removed.iter().map(move |unit| (n, &**unit)))
            .filter(|removed| !added.contains_key(removed))
            .collect();
        if writing.needs(Part::ReadyRemoved, &removed) {
            writing.list(&removed, |(n, _)| *n);
            writing.list(&removed, |(_, unit)| *unit);
        }
        let added: Vec<(i64, &ReadyUnit)> = added.into_iter().map(|((n, _), unit)| (n, unit)).collect();
        if writing.needs(Part::ReadyAdded, &added) {
            writing.list(&added, |(n, _)| *n);
            writing.list(&added, |(_, unit)| &*unit.unit);
            writing.list(&added, |(_, unit)| &*unit.queue);
            writing.list(&added, |(_, unit)| &*unit.contract);
            writing.list(&added, |(_, unit)| &*unit.language);
            writing.list(&added, |(_, unit)| i64::from(unit.priority));
            writing.list(&added, |(_, unit)| unit.ready_time.as_micros());
        }
    }

    /// States, wake-up times and newest runs of executions that were there before. A deletion writes the row itself: no
    /// statement can change a row twice.
    fn put_rows(&self, writing: &mut Writing) {
        let is_changed = |append: &Append| {
            append.deletion.is_none()
                && (append.state.is_some() || append.wake_set().is_some() || append.begins_run.is_some())
        };
        let changed: Vec<_> = self.existing.iter().filter(|(_, append)| is_changed(append)).collect();
        if writing.needs(Part::Rows, &changed) {
            let close_time = |append: &Append| append.state.and_then(|change| change.close_time);
            writing.list(&changed, |(key, _)| *key);
            writing.list(&changed, |(_, append)| append.state.map(|change| change.to as i64));
            writing.list(&changed, |(_, append)| close_time(append).map(Timestamp::as_micros));
            writing.list(&changed, |(_, append)| i64::from(append.wake_set().is_some()));
            writing.list(&changed, |(_, append)| append.wake_set().flatten().map(Timestamp::as_micros));
            writing.list(&changed, |(_, append)| append.begins_run.map(|_| i64::from(append.run)));
        }
    }

    fn put_counters(&self, writing: &mut Writing, slot: i64, committer: i64) {
        let new = self.new.iter().zip(1..).map(|((new, _), place): (_, i64)| (-place, new.state, 1));
        let changes = self.existing.iter().filter_map(|(key, append)| Some((*key, append.state?)));
        let moved = changes.flat_map(|(key, change)| [(key, change.from, -1), (key, change.to, 1)]);
        let deletions = self.existing.iter().filter_map(|(key, append)| Some((*key, append.deletion.as_ref()?)));
        let gone = deletions.map(|(key, deletion)| (key, deletion.state, -1));
        let deltas: Vec<(i64, _, i64)> = new.chain(moved).chain(gone).collect();
        if writing.needs(Part::Counters, &deltas) {
            writing.values.push(slot);
            writing.values.push(committer);
            writing.list(&deltas, |(n, ..)| *n);
            writing.list(&deltas, |(_, state, _)| *state as i64);
            writing.list(&deltas, |(.., delta)| *delta);
        }
    }

    fn put_snapshots(&self, writing: &mut Writing) {
        let all: Vec<_> = self.all().filter_map(|(n, append)| Some((n, append.snapshot.as_ref()?))).collect();
        if writing.needs(Part::Snapshots, &all) {
            writing.list(&all, |(n, _)| *n);
            writing.list(&all, |(_, snapshot)| number(snapshot.number));
            writing.list(&all, |(_, snapshot)| i64::from(snapshot.format));
            writing.list(&all, |(_, snapshot)| snapshot.definition_hash.as_slice());
            writing.list(&all, |(_, snapshot)| &*snapshot.bytes);
        }
    }

    fn put_payloads(&self, writing: &mut Writing) {
        let all: Vec<_> = self
            .all()
            .flat_map(|(n, append)| append.payloads.iter().map(move |payload| (n, append.run, payload)))
            .collect();
        if writing.needs(Part::Payloads, &all) {
            writing.list(&all, |(n, ..)| *n);
            writing.list(&all, |(_, run, _)| i64::from(*run));
            writing.list(&all, |(.., payload)| payload.sha256.as_slice());
            writing.list(&all, |(.., payload)| &*payload.json);
        }
    }
}

impl Ordered<'_> {
    fn put_runs(&self, writing: &mut Writing) {
        let begun: Vec<_> =
            self.existing.iter().filter_map(|(key, append)| Some((*key, *append, append.begins_run?))).collect();
        if writing.needs(Part::Runs, &begun) {
            writing.list(&begun, |(key, ..)| *key);
            writing.list(&begun, |(_, append, _)| i64::from(append.run));
            writing.list(&begun, |(_, append, _)| number(append.first_number));
            writing.list(&begun, |(.., start_time)| start_time.as_micros());
        }
    }

    fn put_deletions(&self, writing: &mut Writing) {
        let begun: Vec<_> =
            self.existing.iter().filter_map(|(key, append)| Some((*key, append.deletion.as_ref()?))).collect();
        if writing.needs(Part::Deletions, &begun) {
            writing.list(&begun, |(key, _)| *key);
            writing.list(&begun, |(_, deletion)| deletion.time.as_micros());
            writing.list(&begun, |(_, deletion)| deletion.request.as_ref().map(|request| request.key.as_slice()));
            writing.list(&begun, |(_, deletion)| deletion.request.as_ref().map(|request| request.content.as_slice()));
            let mut labels = Vec::new();
            for (key, deletion) in &begun {
                labels.extend(deletion.labels.iter().map(|(label, value)| (*key, label, value, deletion.start_time)));
            }
            writing.list(&labels, |(key, ..)| *key);
            writing.list(&labels, |(_, label, ..)| label.as_str());
            writing.list(&labels, |(_, _, value, _)| value.as_str());
            writing.list(&labels, |(.., start_time)| start_time.as_micros());
        }
    }
}

/// The values of a statement as they are gathered, in the order of [`text`].
struct Writing {
    parts: u16,
    values: Values,
}

impl Writing {
    /// Whether a part has anything to write; if so, it is in the statement.
    fn needs<T>(&mut self, part: Part, rows: &[T]) -> bool {
        if !rows.is_empty() {
            self.parts |= part as u16;
        }
        !rows.is_empty()
    }

    /// Adds a column of rows.
    fn list<'r, 'v, R, T>(&mut self, rows: &'r [R], column: impl Fn(&'r R) -> T)
    where
        Vec<T>: sqlx::Encode<'v, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        self.values.push(rows.iter().map(column).collect::<Vec<T>>());
    }
}

/// Text of a statement as it grows.
struct Text {
    parts: u16,
    text: String,
    places: usize,
    answers: String,
}

impl Text {
    fn has(&self, part: Part) -> bool {
        self.parts & part as u16 != 0
    }

    /// So many places for values, from the next one on.
    fn places(&mut self, count: usize) -> String {
        let places: Vec<String> = (0..count).map(|place| format!("${}", self.places + place + 1)).collect();
        self.places += count;
        places.join(", ")
    }

    /// Adds a named part.
    fn with(&mut self, name: &str, sql: &str) {
        let before = if self.text.is_empty() { "WITH" } else { "," };
        write!(self.text, "{before} {name} AS ({sql})").expect("a string takes all text");
    }

    /// Adds a part that writes rows of appends that were written, and its count to the answer. In `sql` stands `LIST` for its
    /// rows: its columns, and the execution as `key`.
    fn companion(&mut self, part: Part, name: &str, change: Change, columns: &[&str], sql: &str) {
        if !self.has(part) {
            return;
        }
        let places = self.places(columns.len() + 1);
        let names = columns.join(", ");
        let list =
            format!("(SELECT w.key, {names} FROM unnest({places}) AS v (n, {names}) JOIN won AS w ON w.n = v.n)");
        self.with(name, &format!("{} RETURNING 1", sql.replace("LIST", &list)));
        self.count(name, change);
    }

    fn count(&mut self, name: &str, change: Change) {
        let change = change as usize;
        write!(self.answers, " UNION ALL SELECT {change}, count(*), 0 FROM {name}").expect("a string takes all text");
    }
}

/// The number must follow the newest one that is there (or the floor, where all were trimmed); the unique key decides between
/// two that find the same newest one. `LIMIT` keeps the look at each execution a look through its key, whatever the planner
/// thinks of the size of a table that has just been made.
const NEXT: &str = "CROSS JOIN LATERAL (SELECT e.floor_seq, e.delete_time FROM executions AS e WHERE e.key = a.key LIMIT 1) AS e \
     WHERE e.delete_time IS NULL AND e.floor_seq < a.first_seq AND a.first_seq = 1 + coalesce((SELECT h.last_seq FROM history AS h \
     WHERE h.execution_key = a.key ORDER BY h.first_seq DESC LIMIT 1), e.floor_seq)";

/// The statement that consists of these parts.
fn text(parts: u16) -> String {
    let mut text = Text { parts, text: String::new(), places: 0, answers: String::new() };
    let mut rows = Vec::new();
    let mut won = Vec::new();
    if text.has(Part::Existing) {
        let places = text.places(6);
        // A key that nobody has yet could be given to a new execution of the same batch.
        let others = if text.has(Part::New) { " WHERE execution_key NOT IN (SELECT key FROM created)" } else { "" };
        won.push(format!("SELECT execution_key AS n, execution_key AS key FROM written{others}"));
        rows.push(format!(
            "SELECT a.key, a.first_seq, a.last_seq, a.run, a.batch_id, a.events \
             FROM unnest({places}) AS a (key, first_seq, last_seq, run, batch_id, events) {NEXT}"
        ));
    }
    if text.has(Part::New) {
        let (row, history) = (text.places(14), text.places(4));
        let uids = row.split(',').next().unwrap_or_default().to_owned();
        let columns = "uid, id, workflow, version, definition_hash, input_digest, request_key, request_content, state, labels, \
                       start_time, close_time, wake_time, schedule_uid";
        text.with(
            "created",
            &format!(
                "INSERT INTO executions (key, {columns}, namespace, current) OVERRIDING SYSTEM VALUE \
                 SELECT key, {columns}, '{NAMESPACE}', 1 FROM \
                 (SELECT nextval('executions_key_seq') AS key, {columns} FROM unnest({row}) AS v ({columns})) AS v ORDER BY id \
                 ON CONFLICT DO NOTHING RETURNING uid, key"
            ),
        );
        rows.push(format!(
            "SELECT c.key, 1, v.last_seq, v.run, v.batch_id, v.events FROM created AS c \
             JOIN unnest({uids}, {history}) AS v (uid, last_seq, run, batch_id, events) ON v.uid = c.uid"
        ));
        won.push(format!(
            "SELECT -v.place AS n, c.key FROM created AS c JOIN unnest({uids}) WITH ORDINALITY AS v (uid, place) ON v.uid = c.uid"
        ));
        text.count("created", Change::ExecutionInserted);
    }
    text.with(
        "written",
        &format!(
            "INSERT INTO history (execution_key, first_seq, last_seq, run, batch_id, format, events) \
             SELECT r.key, r.first_seq, r.last_seq, r.run, r.batch_id, {EVENT_FORMAT}, r.events \
             FROM ({}) AS r (key, first_seq, last_seq, run, batch_id, events) ORDER BY r.key \
             ON CONFLICT DO NOTHING RETURNING execution_key",
            rows.join(" UNION ALL ")
        ),
    );
    text.count("written", Change::HistoryInserted);
    text.with("won", &won.join(" UNION ALL "));
    companions(&mut text);
    let Text { text, answers, .. } = text;
    format!("{text} SELECT CAST({WRITTEN} AS BIGINT), n, key FROM won{answers}")
}

fn companions(text: &mut Text) {
    text.companion(
        Part::Labels,
        "labelled",
        Change::LabelInserted,
        &["label", "value", "start_time"],
        &format!(
            "INSERT INTO labels (namespace, key, value, start_time, execution_key) \
             SELECT '{NAMESPACE}', v.label, v.value, v.start_time, v.key FROM LIST AS v ON CONFLICT DO NOTHING"
        ),
    );
    text.companion(
        Part::ReadyRemoved,
        "taken",
        Change::ReadyDeleted,
        &["unit"],
        // By place, so that each is one look through the key, whatever the planner thinks of a table that was empty when it
        // looked. The place holds: whoever wins a fence sees all that those before wrote, and nobody else moves the rows.
        "DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT (SELECT r.ctid FROM ready AS r WHERE r.execution_key = v.key \
           AND r.unit = v.unit LIMIT 1) FROM LIST AS v))",
    );
    text.companion(
        Part::ReadyAdded,
        "queued",
        Change::ReadyInserted,
        &["unit", "queue", "contract", "language", "priority", "ready_time"],
        "INSERT INTO ready (execution_key, unit, queue, contract, language, priority, ready_time) \
         SELECT v.key, v.unit, v.queue, v.contract, v.language, v.priority, v.ready_time FROM LIST AS v \
         ON CONFLICT (execution_key, unit) DO UPDATE SET queue = excluded.queue, contract = excluded.contract, \
         language = excluded.language, priority = excluded.priority, ready_time = excluded.ready_time",
    );
    if text.has(Part::Rows) {
        let places = text.places(6);
        // Only executions that were there before, whose name is their key. What looks superfluous is the way to their rows.
        text.with(
            "changed",
            &format!(
                "UPDATE executions AS e SET state = coalesce(v.state, e.state), \
                 close_time = CASE WHEN v.state IS NULL THEN e.close_time ELSE v.close_time END, \
                 wake_time = CASE v.is_woken WHEN 1 THEN v.wake_time ELSE e.wake_time END, run = coalesce(v.run, e.run) \
                 FROM unnest({places}) AS v (key, state, close_time, is_woken, wake_time, run) \
                 WHERE e.key = v.key AND e.key = ANY (ARRAY(SELECT key FROM won)) RETURNING 1"
            ),
        );
        text.count("changed", Change::ExecutionUpdated);
    }
    if text.has(Part::Counters) {
        let owner = text.places(2);
        text.companion(
            Part::Counters,
            "counted",
            Change::CounterChanged,
            &["state", "delta"],
            &format!(
                "INSERT INTO counters (slot, committer, state, count) \
                 SELECT {owner}, v.state, CAST(sum(v.delta) AS BIGINT) FROM LIST AS v \
                 GROUP BY v.state HAVING sum(v.delta) <> 0 ORDER BY v.state \
                 ON CONFLICT (slot, committer, state) DO UPDATE SET count = counters.count + excluded.count"
            ),
        );
    }
    text.companion(
        Part::Snapshots,
        "kept",
        Change::SnapshotWritten,
        &["seq", "format", "definition_hash", "bytes"],
        "INSERT INTO snapshots (execution_key, seq, format, definition_hash, bytes) \
         SELECT v.key, v.seq, v.format, v.definition_hash, v.bytes FROM LIST AS v \
         ON CONFLICT (execution_key) DO UPDATE SET seq = excluded.seq, format = excluded.format, \
         definition_hash = excluded.definition_hash, bytes = excluded.bytes WHERE excluded.seq > snapshots.seq",
    );
    text.companion(
        Part::Payloads,
        "stored",
        Change::PayloadInserted,
        &["run", "digest", "json"],
        "INSERT INTO payloads (execution_key, run, digest, json) SELECT v.key, v.run, v.digest, v.json FROM LIST AS v \
         ON CONFLICT DO NOTHING",
    );
    text.companion(
        Part::Runs,
        "begun",
        Change::RunInserted,
        &["run", "first_seq", "start_time"],
        "INSERT INTO runs (execution_key, run, first_seq, start_time) SELECT v.key, v.run, v.first_seq, v.start_time \
         FROM LIST AS v ON CONFLICT DO NOTHING",
    );
    deletions(text);
}

fn deletions(text: &mut Text) {
    if !text.has(Part::Deletions) {
        return;
    }
    let places = text.places(4);
    text.with(
        "deleted",
        &format!(
            "UPDATE executions AS e SET current = 0, wake_time = NULL, delete_time = v.delete_time, \
             request_key = v.request_key, request_content = v.request_content \
             FROM unnest({places}) AS v (key, delete_time, request_key, request_content) \
             WHERE e.key = v.key AND e.key = ANY (ARRAY(SELECT key FROM won)) RETURNING 1"
        ),
    );
    text.count("deleted", Change::ExecutionUpdated);
    text.companion(
        Part::Deletions,
        "unlabelled",
        Change::LabelDeleted,
        &["label", "value", "start_time"],
        // By place, as ready rows are.
        &format!(
            "DELETE FROM labels WHERE ctid = ANY (ARRAY(SELECT (SELECT l.ctid FROM labels AS l \
               WHERE l.namespace = '{NAMESPACE}' AND l.key = v.label AND l.value = v.value AND l.start_time = v.start_time \
               AND l.execution_key = v.key LIMIT 1) FROM LIST AS v))"
        ),
    );
}

/// Which appends are written already: an append that lost its fence to itself, because its COMMIT worked though the answer was
/// lost. Answers with `n` and the execution.
pub(super) mod before {
    pub(in crate::store::postgres) const EXISTING: &str = "SELECT v.key, v.key FROM unnest($1, $2, $3) AS v (key, first_seq, batch_id) \
         WHERE EXISTS (SELECT 1 FROM history AS h WHERE h.execution_key = v.key AND h.first_seq = v.first_seq \
           AND h.batch_id = v.batch_id)";
    pub(in crate::store::postgres) const NEW: &str = "SELECT v.n, e.key FROM unnest($1, $2, $3) AS v (n, uid, batch_id) \
         CROSS JOIN LATERAL (SELECT key FROM executions WHERE uid = v.uid LIMIT 1) AS e \
         WHERE EXISTS (SELECT 1 FROM history AS h WHERE h.execution_key = e.key AND h.first_seq = 1 \
           AND h.batch_id = v.batch_id)";
}

fn number(number: u64) -> i64 {
    i64::try_from(number).expect("an append's numbers were checked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_events_only_is_a_short_statement() {
        let text = text(Part::Existing as u16);
        assert_eq!(text.matches(" AS (").count(), 2, "{text}");
        assert!(!text.contains("created"), "{text}");
    }

    #[test]
    fn places_are_numbered_in_the_order_in_which_values_are_added() {
        let text = text(SHAPES as u16 - 1);
        let last = (1..).take_while(|place| text.contains(&format!("${place}"))).last();
        // Of the parts in their order: six, eighteen, four, two, seven, six, five, five, four, four, eight.
        assert_eq!(last, Some(6 + 18 + 4 + 2 + 7 + 6 + 5 + 5 + 4 + 4 + 8));
    }
}
