//! Plays one story: a start, workers, callers, and time that leaps where all of them wait.

use crate::{
    calls::{Cast, told},
    events::{at_once, missing},
    script::{Script, Story},
    stage::Stage,
    worker::Workers,
};
use orbit::domain::{Payload, Timestamp, definition::duration};
use orbit::engine::{IdReuse, StartExecution, input_digest};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Rounds of one story; it is stuck before.
const ROUNDS_MAX: usize = 5_000;
/// Rounds in which nothing happens and nothing is due.
const IDLE_ROUNDS_MAX: usize = 100;
/// The longest step of time while somebody works: workers must beat in between.
const STEP: Duration = Duration::from_secs(5);
/// Shortest wait that is worth a leap; a shorter one passes.
const LEAP_MIN: Duration = Duration::from_secs(3);

/// Plays a story on a stage.
pub(crate) async fn story(stage: &Stage, story: &Story) -> Result<(), String> {
    let script = &story.script;
    let id = script.id.as_deref().unwrap_or(&story.name);
    let engine = &stage.engine;
    let mut cast = Cast::before(engine, id).await;
    let input = script.input.to_string();
    let start = StartExecution {
        id: Some(cast.own.id.clone()),
        workflow: Arc::from(story.workflow.as_str()),
        version: None,
        input: Payload::from_json(input.as_str()),
        input_digest: input_digest(&story.workflow, &input),
        labels: BTreeMap::new(),
        request: None,
        trace_parent: Arc::from(""),
        id_reuse: IdReuse::Reject,
        delay: script.delay,
        signal: None,
    };
    engine.start_execution(start).await.map_err(|error| error.to_string())?;
    let mut workers = Workers::register(engine, &stage.definitions, &story.workflow, &script.tasks).await;
    let ended = until_the_end(stage, script, &mut cast, &mut workers).await;
    workers.leave().await;
    let judged = match ended {
        Ok(()) => judge(stage, script, &cast).await,
        Err(why) => Err(why),
    };
    judged.map_err(|why| format!("{why}\n{}", told(&cast.members)))
}

async fn until_the_end(
    stage: &Stage,
    script: &Script,
    cast: &mut Cast<'_>,
    workers: &mut Workers<'_>,
) -> Result<(), String> {
    let mut idle = 0;
    for _ in 0..ROUNDS_MAX {
        let has_worked = workers.work().await.map_err(|error| format!("a worker was answered: {error}"))?;
        let is_new = cast.look().await;
        let now = stage.engine.clock().now();
        let (has_called, next_call) = cast.call(&script.calls, now.as_micros()).await?;
        if cast.are_all_closed() && !has_called && next_call.is_none() {
            return Ok(());
        }
        if has_worked || has_called || is_new {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle > IDLE_ROUNDS_MAX {
            return Err("nothing happens any more, and nothing is due".to_owned());
        }
        if wait(stage, next_call, workers).await {
            idle = 0;
        }
    }
    Err("it does not end".to_owned())
}

/// Lets time pass until something may happen; says whether anything is to be expected at all.
async fn wait(stage: &Stage, next_call: Option<i64>, workers: &Workers<'_>) -> bool {
    let engine = &stage.engine;
    let now = engine.clock().now();
    let far = Timestamp::from_micros(i64::MAX / 2);
    let due = engine.store().due(far, 1_000).await.unwrap();
    let next_due = due.iter().map(|(_, time)| *time).min();
    let next_call = next_call.map(Timestamp::from_micros);
    let next_report = workers.next_report().map(|at| now + at.duration_since(tokio::time::Instant::now()));
    let Some(next) = next_due.into_iter().chain(next_call).chain(next_report).min() else {
        tokio::time::sleep(Duration::from_millis(50)).await;
        return false;
    };
    let span = next.since(now);
    if workers.is_busy() || span < LEAP_MIN {
        tokio::time::sleep(span.clamp(Duration::from_millis(50), STEP)).await;
    } else {
        tokio::time::advance(span).await;
    }
    true
}

/// Compares what came of it with what should have.
async fn judge(stage: &Stage, script: &Script, cast: &Cast<'_>) -> Result<(), String> {
    let own = cast.own();
    let standing = stage.engine.execution(&own.name).await.map_err(|error| error.to_string())?;
    let state = &standing.state;
    let mut faults = Vec::new();
    let ended = state.phase().as_str();
    if ended != script.ends {
        faults.push(format!("it ended {ended}, not {}", script.ends));
    }
    let failure = state.failure().map(|failure| failure.code.to_string());
    if script.failure.is_some() && failure != script.failure {
        faults.push(format!("its failure is {failure:?}, not {:?}", script.failure));
    }
    if let Some(expected) = &script.output {
        let output: Value = state.output().map_or(Value::Null, |output| serde_json::from_str(output.as_str()).unwrap());
        if !fits(expected, &output) {
            faults.push(format!("its output is {output}, not {expected}"));
        }
    }
    if let Some(line) = missing(&own.lines, &script.order) {
        faults.push(format!("`{line}` is not where it should be in the history"));
    }
    for pattern in &script.never {
        if let Some(line) = own.lines.iter().find(|line| line.is(pattern)) {
            faults.push(format!("`{}` should not have happened", line.text));
        }
    }
    for (unit, expected) in &script.inputs {
        let with_input = |line: &&crate::events::Line| line.unit() == Some(unit) && line.body.get("input").is_some();
        let input = own.lines.iter().rev().find(with_input).map_or(&Value::Null, |line| &line.body["input"]);
        if !fits(expected, input) {
            faults.push(format!("the input of {unit} is {input}, not {expected}"));
        }
    }
    for (step, expected) in &script.at_once {
        let most = at_once(&own.lines, step);
        if most != *expected {
            faults.push(format!("at most {most} items of {step} ran at once, not {expected}"));
        }
    }
    let runs = 1 + own.lines.iter().filter(|line| line.kind() == "ContinuedAsNew").count();
    if script.runs.is_some_and(|expected| expected != runs) {
        faults.push(format!("there were {runs} runs, not {:?}", script.runs));
    }
    for (query, expected) in &script.queries {
        let answer = stage.engine.query(&own.name, query).await.map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_str(answer.0.as_str()).unwrap();
        if !fits(expected, &answer) {
            faults.push(format!("the query {query} gives {answer}, not {expected}"));
        }
    }
    judge_children(script, cast, &mut faults);
    judge_time(script, cast, &mut faults);
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

fn judge_children(script: &Script, cast: &Cast<'_>, faults: &mut Vec<String>) {
    for (workflow, expected) in &script.children {
        let count = cast.children(workflow).count();
        if count != *expected {
            faults.push(format!("there were {count} children of {workflow}, not {expected}"));
        }
    }
    for (workflow, expected) in &script.children_end {
        for child in cast.children(workflow) {
            let mut kinds = child.lines.iter().rev().map(|line| line.kind());
            let last = kinds.find(|kind| kind.starts_with("Execution")).unwrap_or("");
            if last.strip_prefix("Execution").map(str::to_uppercase) != Some(expected.replace('_', "")) {
                faults.push(format!("a child of {workflow} ended with {last}, not {expected}"));
            }
        }
    }
}

fn judge_time(script: &Script, cast: &Cast<'_>, faults: &mut Vec<String>) {
    let row = &cast.own().row;
    let close = row.close_time.unwrap_or(row.start_time);
    let span = close.since(row.start_time);
    if script.lasts.as_ref().is_some_and(|lasts| span < lasts.least || span > lasts.most) {
        faults.push(format!("it lasted {}", duration::format(span)));
    }
    let at = script.ends_at.as_deref().and_then(duration::parse_time);
    if at.is_some_and(|at| close < at || close > at + Duration::from_secs(3_600)) {
        faults.push(format!("it ended at {}", duration::format_time(close)));
    }
}

/// Whether the value is what was expected; `$any` expects any.
fn fits(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::String(text), _) if text == "$any" => true,
        (Value::Array(expected), Value::Array(found)) => {
            expected.len() == found.len() && expected.iter().zip(found).all(|(expected, found)| fits(expected, found))
        }
        (Value::Object(expected), Value::Object(found)) => {
            expected.len() == found.len()
                && expected.iter().all(|(name, value)| found.get(name).is_some_and(|found| fits(value, found)))
        }
        (Value::Number(expected), Value::Number(found)) => expected.as_f64() == found.as_f64(),
        _ => expected == found,
    }
}
