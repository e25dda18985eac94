//! Group commit: a batch of appends in one transaction, with few statements.
//!
//! In order: new executions (an id that is taken does not come back) → history, each row only if its number is the next
//! one (a row that does not come back is a conflict) → everything else, only for those that came back. So a conflict
//! costs its own append alone. An error that lies in the data rolls back and halves the batch, until the guilty append
//! stands alone and the rest is written.
//!
//! # Design
//! One statement over many rows costs a fraction of as many statements, so each kind of row is written with VALUES lists
//! of a few fixed sizes ([`Rows`]).

use super::connection::{Transaction, Unfinished, Values, Writer, made};
use super::error;
use crate::domain::Timestamp;
use crate::store::{
    Append, Change, Committed, EVENT_FORMAT, Error, ExecutionKey, ExecutionState, NAMESPACE, NewExecution, Target,
    sql::{self, ROWS_MAX, Rows},
};
use sqlx::Row as _;
use std::collections::BTreeMap;

/// Commits a batch; see [`crate::store::Store::commit`].
pub(super) async fn commit(writer: &mut Writer, batch: &[Append]) -> Result<Vec<Committed>, Error> {
    let mut outcomes = vec![Committed::Conflict; batch.len()];
    let mut sound = Vec::with_capacity(batch.len());
    for (index, append) in batch.iter().enumerate() {
        match append.check() {
            Ok(()) => sound.push(index),
            Err(rule) => outcomes[index] = Committed::Failed { what: rule.to_owned() },
        }
    }
    // Parts that are still to be written, the next one last.
    let mut parts = vec![sound];
    while let Some(mut part) = parts.pop() {
        let appends: Vec<&Append> = part.iter().map(|index| &batch[*index]).collect();
        match attempt(writer, &appends).await {
            Ok(committed) => {
                for (index, outcome) in part.into_iter().zip(committed) {
                    outcomes[index] = outcome;
                }
            }
            Err(Unfinished::RolledBack(cause)) if error::is_of_the_data(&cause) => {
                if let [guilty] = part[..] {
                    tracing::error!(error = %cause, "an append cannot be written");
                    outcomes[guilty] = Committed::Failed { what: cause.to_string() };
                } else {
                    let second_half = part.split_off(part.len() / 2);
                    parts.extend([second_half, part]);
                }
            }
            Err(unfinished) => return Err(unfinished.into()),
        }
    }
    Ok(outcomes)
}

/// Writes a part in one transaction. Where it is unclear whether a COMMIT worked, the part is written again: what stands
/// there already is recognised by its `batch_id`.
async fn attempt(writer: &mut Writer, appends: &[&Append]) -> Result<Vec<Committed>, Unfinished> {
    match attempt_once(writer, appends).await {
        Err(Unfinished::Unclear(cause)) => {
            tracing::warn!(error = %cause, "a COMMIT failed; the batch is written again");
            attempt_once(writer, appends).await
        }
        clear => clear,
    }
}

async fn attempt_once(writer: &mut Writer, appends: &[&Append]) -> Result<Vec<Committed>, Unfinished> {
    if appends.is_empty() {
        return Ok(Vec::new());
    }
    let mut transaction = writer.begin().await?;
    let written = write(&mut transaction, appends).await;
    writer.finish(transaction, written).await
}

/// An append whose fence was won, with its execution.
struct Won<'a> {
    key: ExecutionKey,
    append: &'a Append,
}

async fn write(transaction: &mut Transaction, appends: &[&Append]) -> sqlx::Result<Vec<Committed>> {
    let keys = create_executions(transaction, appends).await?;
    let mut fenced: Vec<(ExecutionKey, usize)> =
        keys.iter().enumerate().filter_map(|(index, key)| Some(((*key)?, index))).collect();
    // In order of the table, so that neighbours share pages.
    fenced.sort_unstable();
    let won: Vec<Won<'_>> = fenced.iter().map(|(key, index)| Won { key: *key, append: appends[*index] }).collect();
    let came_back = insert_history(transaction, &won).await?;

    let mut outcomes = vec![None; appends.len()];
    for (won_fence, (key, index)) in came_back.iter().zip(&fenced) {
        if *won_fence {
            outcomes[*index] = Some(Committed::Written(*key));
        }
    }
    let won: Vec<Won<'_>> =
        won.into_iter().zip(came_back).filter_map(|(won, came_back)| came_back.then_some(won)).collect();
    write_companions(transaction, &won).await?;

    let mut answers = Vec::with_capacity(appends.len());
    for (append, outcome) in appends.iter().zip(outcomes) {
        answers.push(match outcome {
            Some(outcome) => outcome,
            None => written_before(transaction, append).await?,
        });
    }
    Ok(answers)
}

static EXECUTIONS: Rows = Rows::new(
    "INSERT INTO executions (uid, namespace, id, current, workflow, version, definition_hash, input_digest, request_key, \
     request_content, state, labels, start_time, close_time, wake_time) \
     SELECT column1, column2, column3, 1, column4, column5, column6, column7, column8, column9, column10, column11, column12, \
     column13, column14 FROM ",
    14,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING RETURNING uid, key",
);

/// Inserts the rows of new executions. Answers with the key of each append's execution; none where the id is taken.
async fn create_executions(
    transaction: &mut Transaction,
    appends: &[&Append],
) -> sqlx::Result<Vec<Option<ExecutionKey>>> {
    let mut keys = Vec::with_capacity(appends.len());
    let mut new: Vec<(&NewExecution, Option<Timestamp>)> = Vec::new();
    for append in appends {
        match &append.target {
            Target::Existing(key) => keys.push(Some(*key)),
            Target::New(execution) => {
                keys.push(None);
                new.push((execution, append.wake_set().flatten()));
            }
        }
    }
    let mut created = BTreeMap::new();
    for chunk in new.chunks(ROWS_MAX) {
        let (text, places) = EXECUTIONS.text(chunk.len());
        let mut values = Values::default();
        for (execution, wake_time) in chunk {
            values.push(execution.uid.0.as_bytes().to_vec());
            values.push(NAMESPACE);
            values.push(execution.id.clone());
            values.push(execution.workflow.clone());
            values.push(execution.version.clone());
            values.push(execution.definition_hash.to_vec());
            values.push(execution.input_digest.to_vec());
            values.push(execution.request.map(|request| request.key.to_vec()));
            values.push(execution.request.map(|request| request.content.to_vec()));
            values.push(execution.state as i64);
            values.push(serde_json::to_string(&execution.labels).expect("a map of texts is JSON"));
            values.push(execution.start_time.as_micros());
            values.push(execution.close_time.map(Timestamp::as_micros));
            values.push(wake_time.map(Timestamp::as_micros));
        }
        debug_assert!(values.len() <= places, "a statement has a place for each value");
        for row in transaction.returning(Change::ExecutionInserted, made(text), values).await? {
            created.insert(row.try_get::<Vec<u8>, _>(0)?, ExecutionKey(row.try_get(1)?));
        }
    }
    for (key, append) in keys.iter_mut().zip(appends) {
        if let Target::New(execution) = &append.target {
            *key = created.get(&execution.uid.0.as_bytes()[..]).copied();
        }
    }
    Ok(keys)
}

// The number must follow the newest one that is there (or the floor, where all were trimmed). The unique key stays the
// fence; on this single writer the condition alone already holds.
static HISTORY: Rows = Rows::new(
    "INSERT INTO history (execution_key, first_seq, last_seq, run, batch_id, format, events) \
     SELECT column1, column2, column3, column4, column5, column6, column7 FROM ",
    7,
    " AS v CROSS JOIN executions AS e WHERE e.key = v.column1 AND e.floor_seq < v.column2 AND v.column2 = 1 + coalesce(\
     (SELECT h.last_seq FROM history AS h WHERE h.execution_key = v.column1 ORDER BY h.first_seq DESC LIMIT 1), e.floor_seq) \
     ON CONFLICT DO NOTHING RETURNING execution_key",
);

/// Inserts the history rows; says of each whether it came back.
async fn insert_history(transaction: &mut Transaction, fenced: &[Won<'_>]) -> sqlx::Result<Vec<bool>> {
    let mut came_back = Vec::with_capacity(fenced.len());
    for chunk in fenced.chunks(ROWS_MAX) {
        let (text, _) = HISTORY.text(chunk.len());
        let mut values = Values::default();
        for Won { key, append } in chunk {
            values.push(key.0);
            values.push(number(append.first_number));
            values.push(number(append.last_number));
            values.push(i64::from(append.run));
            values.push(append.batch_id.as_bytes().to_vec());
            values.push(i64::from(EVENT_FORMAT));
            values.push(append.events.to_vec());
        }
        let rows = transaction.returning(Change::HistoryInserted, made(text), values).await?;
        let mut won = Vec::with_capacity(rows.len());
        for row in rows {
            won.push(row.try_get::<i64, _>(0)?);
        }
        won.sort_unstable();
        came_back.extend(chunk.iter().map(|Won { key, .. }| won.binary_search(&key.0).is_ok()));
    }
    Ok(came_back)
}

/// The answer to an append that lost its fence: written, if the row at its number is its own (its COMMIT worked though the
/// answer was lost), else a conflict.
async fn written_before(transaction: &mut Transaction, append: &Append) -> sqlx::Result<Committed> {
    let key = match &append.target {
        Target::Existing(key) => Some(*key),
        Target::New(execution) => {
            let row =
                transaction.row(sql::KEY_OF_UID, Values::default().with(execution.uid.0.as_bytes().to_vec())).await?;
            row.map(|row| row.try_get(0)).transpose()?.map(ExecutionKey)
        }
    };
    let Some(key) = key else { return Ok(Committed::Conflict) };
    let values = Values::default().with(key.0).with(number(append.first_number));
    let there: Option<Vec<u8>> =
        transaction.row(sql::HISTORY_BATCH, values).await?.map(|row| row.try_get(0)).transpose()?;
    let own = there.is_some_and(|batch_id| batch_id == append.batch_id.as_bytes());
    Ok(if own { Committed::Written(key) } else { Committed::Conflict })
}

static LABELS: Rows = Rows::new(
    "INSERT INTO labels (execution_key, namespace, key, value, start_time) SELECT column1, column2, column3, column4, column5 FROM ",
    5,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING",
);

static READY_REMOVED: Rows = Rows::new("DELETE FROM ready WHERE (execution_key, unit) IN ", 2, "");

static READY_ADDED: Rows = Rows::new(
    "INSERT INTO ready (execution_key, unit, queue, contract, language, priority, ready_time) \
     SELECT column1, column2, column3, column4, column5, column6, column7 FROM ",
    7,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT (execution_key, unit) DO UPDATE SET queue = excluded.queue, \
     contract = excluded.contract, language = excluded.language, priority = excluded.priority, ready_time = excluded.ready_time",
);

// Apart from each other, since an update rewrites the indexes of the columns that it names.
static WAKES: Rows =
    Rows::new("UPDATE executions SET wake_time = v.column2 FROM ", 2, " AS v WHERE executions.key = v.column1");

static STATES: Rows = Rows::new(
    "UPDATE executions SET state = v.column2, close_time = v.column3, \
     wake_time = CASE v.column4 WHEN 1 THEN v.column5 ELSE wake_time END FROM ",
    5,
    " AS v WHERE executions.key = v.column1",
);

static COUNTERS: Rows = Rows::new(
    "INSERT INTO counters (slot, committer, state, count) SELECT 0, 0, column1, column2 FROM ",
    2,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT (slot, committer, state) DO UPDATE SET count = counters.count + excluded.count",
);

static SNAPSHOTS: Rows = Rows::new(
    "INSERT INTO snapshots (execution_key, seq, format, definition_hash, bytes) \
     SELECT column1, column2, column3, column4, column5 FROM ",
    5,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT (execution_key) DO UPDATE SET seq = excluded.seq, format = excluded.format, \
     definition_hash = excluded.definition_hash, bytes = excluded.bytes WHERE excluded.seq > snapshots.seq",
);

static PAYLOADS: Rows = Rows::new(
    "INSERT INTO payloads (execution_key, run, digest, json) SELECT column1, column2, column3, column4 FROM ",
    4,
    " AS v WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING",
);

/// Rows of one statement, gathered and then written in as few statements as possible.
struct Gathered {
    statement: &'static Rows,
    change: Change,
    rows: usize,
    values: Values,
}

impl Gathered {
    fn new(statement: &'static Rows, change: Change) -> Self {
        Self { statement, change, rows: 0, values: Values::default() }
    }

    /// Adds a row, and writes what is gathered once a statement is full.
    async fn add(&mut self, transaction: &mut Transaction, fill: impl FnOnce(&mut Values)) -> sqlx::Result<()> {
        fill(&mut self.values);
        self.rows += 1;
        if self.rows == ROWS_MAX { self.write(transaction).await } else { Ok(()) }
    }

    async fn write(&mut self, transaction: &mut Transaction) -> sqlx::Result<()> {
        if self.rows > 0 {
            let (text, _) = self.statement.text(std::mem::take(&mut self.rows));
            transaction.run(self.change, made(text), std::mem::take(&mut self.values)).await?;
        }
        Ok(())
    }
}

async fn write_companions(transaction: &mut Transaction, won: &[Won<'_>]) -> sqlx::Result<()> {
    write_labels(transaction, won).await?;
    write_ready(transaction, won).await?;
    write_rows(transaction, won).await?;
    write_counters(transaction, won).await?;

    let mut snapshots = Gathered::new(&SNAPSHOTS, Change::SnapshotWritten);
    let mut payloads = Gathered::new(&PAYLOADS, Change::PayloadInserted);
    for Won { key, append } in won {
        if let Some(snapshot) = &append.snapshot {
            let fill = |values: &mut Values| {
                values.push(key.0);
                values.push(number(snapshot.number));
                values.push(i64::from(snapshot.format));
                values.push(snapshot.definition_hash.to_vec());
                values.push(snapshot.bytes.to_vec());
            };
            snapshots.add(transaction, fill).await?;
        }
        for payload in &append.payloads {
            let fill = |values: &mut Values| {
                values.push(key.0);
                values.push(i64::from(append.run));
                values.push(payload.sha256.to_vec());
                values.push(payload.json.clone());
            };
            payloads.add(transaction, fill).await?;
        }
    }
    snapshots.write(transaction).await?;
    payloads.write(transaction).await
}

async fn write_labels(transaction: &mut Transaction, won: &[Won<'_>]) -> sqlx::Result<()> {
    let mut labels = Gathered::new(&LABELS, Change::LabelInserted);
    for Won { key, append } in won {
        let Target::New(execution) = &append.target else { continue };
        for (label, value) in &execution.labels {
            let fill = |values: &mut Values| {
                values.push(key.0);
                values.push(NAMESPACE);
                values.push(label.as_str());
                values.push(value.as_str());
                values.push(execution.start_time.as_micros());
            };
            labels.add(transaction, fill).await?;
        }
    }
    labels.write(transaction).await
}

async fn write_ready(transaction: &mut Transaction, won: &[Won<'_>]) -> sqlx::Result<()> {
    let mut removed = Gathered::new(&READY_REMOVED, Change::ReadyDeleted);
    for Won { key, append } in won {
        for unit in &append.ready_removed {
            let fill = |values: &mut Values| {
                values.push(key.0);
                values.push(unit.clone());
            };
            removed.add(transaction, fill).await?;
        }
    }
    removed.write(transaction).await?;

    let mut added = Gathered::new(&READY_ADDED, Change::ReadyInserted);
    for Won { key, append } in won {
        for unit in &append.ready_added {
            let fill = |values: &mut Values| {
                values.push(key.0);
                values.push(unit.unit.clone());
                values.push(unit.queue.clone());
                values.push(unit.contract.clone());
                values.push(unit.language.clone());
                values.push(i64::from(unit.priority));
                values.push(unit.ready_time.as_micros());
            };
            added.add(transaction, fill).await?;
        }
    }
    added.write(transaction).await
}

/// Writes states and wake-up times to the rows of executions that were there before.
async fn write_rows(transaction: &mut Transaction, won: &[Won<'_>]) -> sqlx::Result<()> {
    let mut wakes = Gathered::new(&WAKES, Change::ExecutionUpdated);
    let mut states = Gathered::new(&STATES, Change::ExecutionUpdated);
    for Won { key, append } in won {
        if let Target::New(_) = append.target {
            continue;
        }
        let wake = append.wake_set();
        if let Some(change) = append.state {
            let fill = |values: &mut Values| {
                values.push(key.0);
                values.push(change.to as i64);
                values.push(change.close_time.map(Timestamp::as_micros));
                values.push(i64::from(wake.is_some()));
                values.push(wake.flatten().map(Timestamp::as_micros));
            };
            states.add(transaction, fill).await?;
        } else if let Some(wake_time) = wake {
            let fill = |values: &mut Values| {
                values.push(key.0);
                values.push(wake_time.map(Timestamp::as_micros));
            };
            wakes.add(transaction, fill).await?;
        }
    }
    wakes.write(transaction).await?;
    states.write(transaction).await
}

async fn write_counters(transaction: &mut Transaction, won: &[Won<'_>]) -> sqlx::Result<()> {
    let mut deltas: BTreeMap<ExecutionState, i64> = BTreeMap::new();
    for Won { append, .. } in won {
        if let Target::New(execution) = &append.target {
            *deltas.entry(execution.state).or_default() += 1;
        } else if let Some(change) = append.state {
            *deltas.entry(change.from).or_default() -= 1;
            *deltas.entry(change.to).or_default() += 1;
        }
    }
    let mut counters = Gathered::new(&COUNTERS, Change::CounterChanged);
    for (state, delta) in deltas.into_iter().filter(|(_, delta)| *delta != 0) {
        let fill = |values: &mut Values| {
            values.push(state as i64);
            values.push(delta);
        };
        counters.add(transaction, fill).await?;
    }
    counters.write(transaction).await
}

fn number(number: u64) -> i64 {
    i64::try_from(number).expect("an append's numbers were checked")
}

/// All statements over many rows, for a look at their plans.
#[cfg(test)]
pub(super) fn statements() -> [&'static Rows; 10] {
    [&EXECUTIONS, &HISTORY, &LABELS, &READY_REMOVED, &READY_ADDED, &WAKES, &STATES, &COUNTERS, &SNAPSHOTS, &PAYLOADS]
}
