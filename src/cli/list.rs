//! Lists executions and workers: `list`, `worker list`.

use super::{
    client::{Connection, call},
    error::Error,
    execution::{labels, lifetime, state_cell},
    input::parse_label,
    output::Output,
    table::Table,
};
use crate::proto::{
    admin::{
        CountExecutionsRequest, ListExecutionsRequest, ListWorkersRequest, Worker,
        admin_service_client::AdminServiceClient,
    },
    workflow::{Execution, execution::State},
};
use tonic::transport::Channel;

/// Entries that one call asks for; the server's maximum.
const PAGE_SIZE: usize = 1_000;

/// Lists executions, the newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orbit list --state running --label tenant=a
  orbit list --filter 'workflow = \"order\" AND start_time > \"2026-01-01T00:00:00Z\"' --all -o json")]
pub(super) struct List {
    #[command(flatten)]
    matching: Matching,
    /// Most entries to show, 1 and up
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Shows all of them
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Which executions are meant.
#[derive(Debug, clap::Args)]
pub(super) struct Matching {
    /// Only those in this state
    #[arg(long, value_enum, ignore_case = true)]
    state: Option<StateArgument>,
    /// Only those of this workflow
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// Only those with this label; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// Only those for which this is true, in the language of the API, besides the other options
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
}

/// The states that an execution can be in.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
enum StateArgument {
    Running,
    WindingDown,
    Succeeded,
    Failed,
    Cancelled,
    TimedOut,
    Terminated,
    Paused,
}

/// Lists the sessions of workers.
#[derive(Debug, clap::Args)]
pub(super) struct Workers {
    #[command(flatten)]
    connection: Connection,
}

impl List {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let mut client = self.connection.admin();
        let filter = self.matching.expression();
        let limit = if self.all { usize::MAX } else { usize::try_from(self.limit).expect("u32 fits") };
        let (executions, more) = read(&mut client, &filter, limit).await?;
        if output.is_json() {
            output.json_array(&executions)?;
        } else if executions.is_empty() {
            output.note(if filter.is_empty() { "no executions" } else { "no executions match" });
        } else {
            show(&executions, output)?;
        }
        if more {
            let total = self.matching.total(&mut client).await.map(|total| format!(" of {total}")).unwrap_or_default();
            output.note(&format!("showing {}{total}; --all or --limit shows more", executions.len()));
        }
        Ok(())
    }
}

impl Matching {
    /// All conditions as one filter; empty if there are none.
    pub(super) fn expression(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.state.map(|state| format!("state = {}", state.proto_name())));
        parts.extend(self.workflow.as_ref().map(|workflow| format!("workflow = {}", quoted(workflow))));
        parts.extend(self.labels.iter().map(|(key, value)| format!("labels.{key} = {}", quoted(value))));
        parts.extend(self.filter.clone());
        parts.join(" AND ")
    }

    /// How many there are, where the counters by state can tell.
    async fn total(&self, client: &mut AdminServiceClient<Channel>) -> Option<i64> {
        if self.workflow.is_some() || self.filter.is_some() || !self.labels.is_empty() {
            return None;
        }
        let counts = client.count_executions(call(CountExecutionsRequest {})).await.ok()?.into_inner().counts;
        let counted = |state: State| self.state.is_none_or(|only| only.proto() == state);
        Some(counts.iter().filter(|entry| counted(entry.state())).map(|entry| entry.count).sum())
    }
}

impl StateArgument {
    fn proto(self) -> State {
        match self {
            Self::Running => State::Running,
            Self::WindingDown => State::WindingDown,
            Self::Succeeded => State::Succeeded,
            Self::Failed => State::Failed,
            Self::Cancelled => State::Cancelled,
            Self::TimedOut => State::TimedOut,
            Self::Terminated => State::Terminated,
            Self::Paused => State::Paused,
        }
    }

    fn proto_name(self) -> &'static str {
        let name = self.proto().as_str_name();
        name.strip_prefix("STATE_").unwrap_or(name)
    }
}

/// A text of the filter language.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Follows the pages until there are enough. The second value tells whether there are more.
async fn read(
    client: &mut AdminServiceClient<Channel>,
    filter: &str,
    limit: usize,
) -> Result<(Vec<Execution>, bool), Error> {
    let mut executions = Vec::new();
    let mut page_token = String::new();
    loop {
        let page_size = i32::try_from((limit - executions.len()).min(PAGE_SIZE)).expect("a page is small");
        let request = ListExecutionsRequest { page_size, page_token, filter: filter.to_owned() };
        let page = client.list_executions(call(request)).await?.into_inner();
        executions.extend(page.executions);
        page_token = page.next_page_token;
        if page_token.is_empty() || executions.len() >= limit {
            return Ok((executions, !page_token.is_empty()));
        }
    }
}

fn show(executions: &[Execution], output: Output) -> Result<(), Error> {
    let mut table = Table::with_headers(&["ID", "WORKFLOW", "STATE", "STARTED", "TOOK", "LABELS"]);
    for execution in executions {
        let took = lifetime(execution);
        table.row([
            (&*execution.id).into(),
            format!("{}@{}", execution.workflow, execution.version).into(),
            state_cell(execution.state()),
            output.time(execution.start_time.as_ref()).into(),
            (if took.is_empty() { "-" } else { &took }).into(),
            labels(&execution.labels).into(),
        ]);
    }
    output.table(&table)
}

impl Workers {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let workers = self.read().await?;
        if output.is_json() {
            return output.json_array(&workers);
        }
        if workers.is_empty() {
            output.note("no workers");
            return Ok(());
        }
        let headers = ["WORKER", "SESSION", "LANGUAGE", "QUEUES", "CONTRACTS", "SLOTS", "REGISTERED", "LAST CONTACT"];
        let mut table = Table::with_headers(&headers);
        for worker in &workers {
            table.row([
                (&*worker.worker_id).into(),
                (&*worker.session_id).into(),
                (if worker.language.is_empty() { "-" } else { &worker.language }).into(),
                worker.queues.join(",").into(),
                worker.contracts.join(",").into(),
                worker.slots.to_string().into(),
                output.time(worker.register_time.as_ref()).into(),
                output.time(worker.contact_time.as_ref()).into(),
            ]);
        }
        output.table(&table)
    }

    async fn read(&self) -> Result<Vec<Worker>, Error> {
        let mut client = self.connection.admin();
        let mut workers = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListWorkersRequest { page_size: i32::try_from(PAGE_SIZE).expect("1,000 fits"), page_token };
            let page = client.list_workers(call(request)).await?.into_inner();
            workers.extend(page.workers);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(workers);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        matching: Matching,
    }

    fn expression(arguments: &[&str]) -> String {
        Line::parse_from(["list"].iter().chain(arguments)).matching.expression()
    }

    #[test]
    fn options_become_one_filter() {
        assert_eq!(expression(&[]), "");
        assert_eq!(
            expression(&[
                "--state",
                "timed_out",
                "--workflow",
                "a\"b\\c",
                "--label",
                "x=1",
                "--filter",
                "state != FAILED"
            ]),
            r#"state = TIMED_OUT AND workflow = "a\"b\\c" AND labels.x = "1" AND state != FAILED"#
        );
    }
}
