//! Tells why an execution does not move: `explain`.

use super::{
    client::{Connection, call},
    error::Error,
    execution::{Name, state_cell},
    output::{Output, Tone},
    table::shown,
};
use crate::proto::admin::{ExplainExecutionRequest, Explanation, Wait, wait::Reason};

/// Tells why an execution does not move: what it waits for, and what can be done about it.
#[derive(Debug, clap::Args)]
pub(super) struct Explain {
    #[command(flatten)]
    name: Name,
    #[command(flatten)]
    connection: Connection,
}

impl Explain {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let (id, uid) = self.name.parts();
        let response = self.connection.admin().explain_execution(call(ExplainExecutionRequest { id, uid })).await?;
        let explanation = response.into_inner().explanation.unwrap_or_default();
        if output.is_json() {
            return output.json(&explanation);
        }
        tree(&explanation, output).iter().try_for_each(|line| output.line(line))
    }
}

/// The explanation as a tree: the execution, and a branch for each thing that it waits for.
fn tree(explanation: &Explanation, output: Output) -> Vec<String> {
    let state = state_cell(explanation.state()).painted(output);
    let mut lines = vec![format!("{}  {state}", output.paint(Tone::Strong, &shown(&explanation.id)))];
    let expiry = explanation.expire_time.as_ref().map(|time| format!("its timeout passes {}", output.time(Some(time))));
    let more = (explanation.more_waits > 0).then(|| format!("and {} more", explanation.more_waits));
    let nothing = explanation.waits.is_empty().then(|| "waits for nothing: it moves".to_owned());
    let notes: Vec<String> = nothing.into_iter().chain(more).chain(expiry).collect();
    let count = explanation.waits.len() + notes.len();
    let branches = explanation.waits.iter().map(|wait| branch(wait, output));
    let notes = notes.into_iter().map(|note| vec![output.paint(Tone::Faint, &note)]);
    for (position, branch) in branches.chain(notes).enumerate() {
        let (first, rest) = if position + 1 == count { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let stems = std::iter::once(first).chain(std::iter::repeat(rest));
        lines.extend(branch.iter().zip(stems).map(|(line, stem)| format!("{stem}{line}")));
    }
    lines
}

/// The lines of one wait: what, since when and how long, and what to do.
fn branch(wait: &Wait, output: Output) -> Vec<String> {
    let message = output.paint(tone(wait), &shown(&wait.message));
    let unit = output.paint(Tone::Strong, &shown(&wait.unit));
    let mut lines = vec![if wait.unit.is_empty() { message } else { format!("{unit} {message}") }];
    let mut times = Vec::new();
    let mut add = |text: &str, time: Option<&prost_types::Timestamp>| {
        times.extend(time.map(|time| format!("{text} {}", output.time(Some(time)))));
    };
    add("since", wait.since_time.as_ref());
    if let Some(Reason::Report(report)) = &wait.reason {
        add("last heard of", report.contact_time.as_ref());
        add("beat due", report.heartbeat_due_time.as_ref());
    }
    add("ends by itself", wait.until_time.as_ref());
    if !times.is_empty() {
        lines.push(format!("  {}", output.paint(Tone::Faint, &times.join(", "))));
    }
    if !wait.hint.is_empty() {
        lines.push(format!("  {} {}", output.paint(Tone::Strong, "hint:"), shown(&wait.hint)));
    }
    lines
}

/// Red is what will not end by itself, yellow what went wrong and may yet go well.
fn tone(wait: &Wait) -> Tone {
    match &wait.reason {
        Some(Reason::Quarantine(_)) => Tone::Bad,
        Some(Reason::Worker(worker)) if worker.sessions == 0 => Tone::Bad,
        Some(Reason::WindDown(_) | Reason::Retry(_) | Reason::Pause(_)) => Tone::Warning,
        Some(
            Reason::Closed(_)
            | Reason::Work(_)
            | Reason::Worker(_)
            | Reason::Report(_)
            | Reason::Parent(_)
            | Reason::Abandoned(_)
            | Reason::Child(_)
            | Reason::Recipient(_)
            | Reason::Sleep(_)
            | Reason::Signal(_)
            | Reason::Items(_)
            | Reason::Steps(_)
            | Reason::Delay(_)
            | Reason::Held(_),
        )
        | None => Tone::Plain,
    }
}
