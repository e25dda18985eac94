//! Acts on many executions at once: `batch create`, `batch get`, `batch list`, `batch cancel`.

use super::{
    client::{Connection, call},
    error::Error,
    execution::request_id,
    exit::Exit,
    list::Matching,
    output::{Output, Tone},
    table::{Cell, Table},
    wait::Interrupt,
};
use crate::proto::admin::{
    Batch, CancelAction, CancelBatchRequest, CreateBatchRequest, DeleteAction, GetBatchRequest, ListBatchesRequest,
    RetryAction, TerminateAction, admin_service_client::AdminServiceClient, batch, create_batch_request::Action,
};
use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    time::Duration,
};
use tonic::transport::Channel;

/// Pause between two looks at a batch that is waited for.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// Characters of the progress bar.
const BAR_LENGTH: usize = 30;

/// Acts on all executions that match, in the background.
#[derive(Debug, clap::Subcommand)]
pub(super) enum BatchCommand {
    Create(Create),
    Get(Get),
    #[command(visible_alias = "ls")]
    List(List),
    Cancel(Cancel),
}

/// What is done with each execution.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ActionArgument {
    Cancel,
    Terminate,
    Retry,
    Delete,
}

/// Makes a batch and prints its id. Asks first, with the number of executions that match.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orbit batch create cancel --workflow order --label tenant=a --reason 'tenant left' --wait
  orbit batch create retry --filter 'state = FAILED AND start_time > \"2026-01-01T00:00:00Z\"' --dry-run")]
pub(super) struct Create {
    /// What is done with each execution
    #[arg(value_enum)]
    action: ActionArgument,
    #[command(flatten)]
    matching: Matching,
    /// Why, for people; of cancel and terminate
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Most executions to act on [default: no limit]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    max: Option<u32>,
    /// Only counts those that match
    #[arg(long)]
    dry_run: bool,
    /// Does not ask; needed where nobody can answer
    #[arg(long, short = 'y')]
    yes: bool,
    /// Waits for the end. Ctrl-C detaches, the batch goes on
    #[arg(long)]
    wait: bool,
    /// Makes the call safe to repeat: the same id again changes nothing [default: a new one]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Shows a batch.
#[derive(Debug, clap::Args)]
pub(super) struct Get {
    /// Id of the batch
    id: String,
    /// Waits for the end. Ctrl-C detaches, the batch goes on
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Lists batches, the newest first.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Most entries to show, 1 to 1,000
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(i32).range(1..=1_000))]
    limit: i32,
    #[command(flatten)]
    connection: Connection,
}

/// Ends a batch; what it has done stays done.
#[derive(Debug, clap::Args)]
pub(super) struct Cancel {
    /// Id of the batch
    id: String,
    #[command(flatten)]
    connection: Connection,
}

impl BatchCommand {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        match self {
            Self::Create(create) => create.run(output).await,
            Self::Get(get) => get.run(output).await,
            Self::List(list) => list.run(output).await,
            Self::Cancel(cancel) => cancel.run(output).await,
        }
    }
}

impl ActionArgument {
    fn request(self, reason: String) -> Action {
        match self {
            Self::Cancel => Action::Cancel(CancelAction { reason }),
            Self::Terminate => Action::Terminate(TerminateAction { reason }),
            Self::Retry => Action::Retry(RetryAction {}),
            Self::Delete => Action::Delete(DeleteAction {}),
        }
    }

    const fn verb(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Terminate => "terminate",
            Self::Retry => "retry",
            Self::Delete => "delete",
        }
    }
}

impl Create {
    async fn run(self, output: Output) -> Result<(), Error> {
        let filter = self.matching.expression();
        if filter.is_empty() {
            return Err(Error::usage("name the executions: --state, --workflow, --label or --filter"));
        }
        if !self.dry_run && !self.yes && !io::stdin().is_terminal() {
            return Err(Error::usage("nobody can be asked here: --yes says that it is meant, --dry-run only counts"));
        }
        let mut client = self.connection.admin();
        let request = CreateBatchRequest {
            action: Some(self.action.request(self.reason)),
            filter,
            max_executions: self.max.map_or(0, i64::from),
            dry_run: true,
            request_id: request_id(self.request_id),
        };
        if self.dry_run || !self.yes {
            let counted = client.create_batch(call(request.clone())).await?.into_inner().batch.unwrap_or_default();
            if self.dry_run {
                return if output.is_json() { output.json(&counted) } else { output.line(&matching(&counted)) };
            }
            if !confirmed(self.action, &counted)? {
                output.note("nothing was done");
                return Err(Error::Said(Exit::Failure));
            }
        }
        let request = CreateBatchRequest { dry_run: false, ..request };
        let made = client.create_batch(call(request)).await?.into_inner().batch.unwrap_or_default();
        if self.wait {
            return wait(&mut client, made, output).await;
        }
        if output.is_json() {
            return output.json(&made);
        }
        output.note(&format!("{}; `orbit batch get {} --wait` waits for the end", matching(&made), made.id));
        output.line(&made.id)
    }
}

impl Get {
    async fn run(self, output: Output) -> Result<(), Error> {
        let mut client = self.connection.admin();
        let batch = read(&mut client, &self.id).await?;
        if self.wait { wait(&mut client, batch, output).await } else { show(&batch, output) }
    }
}

impl List {
    async fn run(self, output: Output) -> Result<(), Error> {
        let request = ListBatchesRequest { page_size: self.limit, page_token: String::new() };
        let page = self.connection.admin().list_batches(call(request)).await?.into_inner();
        if output.is_json() {
            output.json_array(&page.batches)?;
        } else if page.batches.is_empty() {
            output.note("no batches");
        } else {
            let mut table =
                Table::with_headers(&["ID", "ACTION", "STATE", "DONE", "SKIPPED", "FAILED", "MADE", "FILTER"]);
            for batch in &page.batches {
                table.row([
                    (&*batch.id).into(),
                    action_name(batch).into(),
                    state_cell(batch.state()),
                    batch.done_count.to_string().into(),
                    batch.skipped_count.to_string().into(),
                    batch.failed_count.to_string().into(),
                    output.time(batch.create_time.as_ref()).into(),
                    (&*batch.filter).into(),
                ]);
            }
            output.table(&table)?;
        }
        if !page.next_page_token.is_empty() {
            output.note(&format!("showing {}; --limit shows more", page.batches.len()));
        }
        Ok(())
    }
}

impl Cancel {
    async fn run(self, output: Output) -> Result<(), Error> {
        let request = CancelBatchRequest { id: self.id };
        let batch = self.connection.admin().cancel_batch(call(request)).await?.into_inner().batch.unwrap_or_default();
        show(&batch, output)
    }
}

async fn read(client: &mut AdminServiceClient<Channel>, id: &str) -> Result<Batch, Error> {
    let response = client.get_batch(call(GetBatchRequest { id: id.to_owned() })).await?;
    Ok(response.into_inner().batch.unwrap_or_default())
}

/// Asks on the terminal.
fn confirmed(action: ActionArgument, counted: &Batch) -> Result<bool, Error> {
    eprint!("{}; {} them? [y/N] ", matching(counted), action.verb());
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// How many match, as far as it is known.
fn matching(batch: &Batch) -> String {
    let least = if batch.expected_complete { "" } else { "at least " };
    let (noun, verb) = if batch.expected_count == 1 { ("execution", "matches") } else { ("executions", "match") };
    let limit = match batch.max_executions {
        0 => String::new(),
        most => format!(", at most {most} of which are reached"),
    };
    format!("{least}{} {noun} {verb}{limit}", batch.expected_count)
}

/// Follows a batch to its end. Fails if it failed with some execution.
async fn wait(client: &mut AdminServiceClient<Channel>, batch: Batch, output: Output) -> Result<(), Error> {
    let mut interrupt = Interrupt::listen()?;
    let id = batch.id.clone();
    let bar = Bar { is_shown: io::stderr().is_terminal() && !output.is_json() };
    let followed =
        interrupt.or(follow(client, batch, bar), || format!("detached from batch {id}, which goes on")).await;
    bar.clear();
    let ended = followed.map_err(|error| error.hint(format!("`orbit batch get {id} --wait` waits for it again")))?;
    show(&ended, output)?;
    if ended.failed_count > 0 { Err(Error::Said(Exit::Failure)) } else { Ok(()) }
}

async fn follow(client: &mut AdminServiceClient<Channel>, mut batch: Batch, bar: Bar) -> Result<Batch, Error> {
    while batch.state() == batch::State::Running {
        bar.show(&batch);
        crate::clock::sleep(LOOK_PAUSE).await;
        batch = read(client, &batch.id).await?;
    }
    Ok(batch)
}

/// A line on stderr that shows how far a batch has come.
#[derive(Clone, Copy)]
struct Bar {
    is_shown: bool,
}

impl Bar {
    fn show(self, batch: &Batch) {
        if self.is_shown {
            eprint!("\r\u{1b}[K{}", progress(batch));
        }
    }

    fn clear(self) {
        if self.is_shown {
            eprint!("\r\u{1b}[K");
        }
    }
}

/// `[=====>    ] 120 of 400, 3 skipped, 1 failed`. What was started or ended meanwhile makes the total an estimate.
fn progress(batch: &Batch) -> String {
    let reached = batch.done_count + batch.skipped_count + batch.failed_count;
    let expected = match batch.max_executions {
        0 => batch.expected_count,
        most => batch.expected_count.min(most),
    }
    .max(reached);
    let length = usize::try_from(reached.saturating_mul(BAR_LENGTH as i64) / expected.max(1)).unwrap_or(BAR_LENGTH);
    let bar = if batch.expected_complete || batch.max_executions > 0 {
        format!("[{:<BAR_LENGTH$}] {reached} of {expected}", "=".repeat(length.min(BAR_LENGTH)))
    } else {
        format!("{reached} of at least {expected}")
    };
    let some = |count: i64, word: &str| if count > 0 { format!(", {count} {word}") } else { String::new() };
    format!("{bar}{}{}", some(batch.skipped_count, "skipped"), some(batch.failed_count, "failed"))
}

fn action_name(batch: &Batch) -> &'static str {
    match &batch.action {
        Some(batch::Action::Cancel(_)) => "cancel",
        Some(batch::Action::Terminate(_)) => "terminate",
        Some(batch::Action::Retry(_)) => "retry",
        Some(batch::Action::Delete(_)) => "delete",
        None => "-",
    }
}

fn state_cell(state: batch::State) -> Cell {
    let (tone, name) = match state {
        batch::State::Unspecified => (Tone::Plain, "-"),
        batch::State::Running => (Tone::Busy, "RUNNING"),
        batch::State::Succeeded => (Tone::Good, "SUCCEEDED"),
        batch::State::Cancelled => (Tone::Warning, "CANCELLED"),
    };
    Cell::toned(tone, name)
}

fn show(batch: &Batch, output: Output) -> Result<(), Error> {
    if output.is_json() {
        return output.json(batch);
    }
    let mut table = Table::default();
    table.field("Id", &*batch.id);
    table.field("Action", action_name(batch));
    table.field("Filter", &*batch.filter);
    table.field("State", state_cell(batch.state()));
    table.field("Matched", matching(batch));
    table.field("Done", batch.done_count.to_string());
    table.field("Skipped", batch.skipped_count.to_string());
    if batch.failed_count > 0 {
        table.field("Failed", Cell::toned(Tone::Bad, batch.failed_count.to_string()));
    }
    table.field("Made", output.time(batch.create_time.as_ref()));
    table.field("Ended", output.time(batch.end_time.as_ref()));
    for failure in &batch.failures {
        table.field("Failure", Cell::toned(Tone::Bad, format!("{}: {}", failure.id, failure.message)));
    }
    output.table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(expected: i64, done: i64, skipped: i64) -> Batch {
        Batch {
            expected_count: expected,
            expected_complete: true,
            done_count: done,
            skipped_count: skipped,
            ..Default::default()
        }
    }

    #[test]
    fn the_bar_fills_with_what_was_reached_and_never_overflows() {
        assert_eq!(progress(&batch(60, 20, 10)), format!("[{:<30}] 30 of 60, 10 skipped", "=".repeat(15)));
        assert_eq!(progress(&batch(1, 5, 0)), format!("[{}] 5 of 5", "=".repeat(30)));
        assert_eq!(progress(&batch(0, 0, 0)), format!("[{:<30}] 0 of 0", ""));
        let most = Batch { expected_complete: false, max_executions: 10, ..batch(100, 10, 0) };
        assert_eq!(progress(&most), format!("[{}] 10 of 10", "=".repeat(30)));
        assert_eq!(progress(&Batch { expected_complete: false, ..batch(100, 7, 0) }), "7 of at least 100");
    }

    #[test]
    fn how_many_match_is_said_with_what_is_not_known() {
        assert_eq!(matching(&batch(1, 0, 0)), "1 execution matches");
        let cut = Batch { expected_complete: false, max_executions: 5, ..batch(100_000, 0, 0) };
        assert_eq!(matching(&cut), "at least 100000 executions match, at most 5 of which are reached");
    }
}
