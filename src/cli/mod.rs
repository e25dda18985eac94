//! The `orbit` command line: one file per group of commands, over the same API that everybody uses.
//!
//! - Results go to stdout, everything else to stderr; `-o json` prints the JSON of the HTTP interface.
//! - How a command ended is its exit code (`exit`); what went wrong is `error: … (REASON)` and `hint: …`.
//! - Ids, labels and payloads are sent as they were typed: the server alone judges them.
//!
//! # Design
//! Options of a server are in `config`, since a server has them however it is started.

mod batch;
mod bench;
mod client;
mod database;
mod definition;
mod error;
mod event;
mod execution;
mod exit;
mod explain;
mod generate;
mod history;
mod input;
mod list;
mod log;
mod migrate;
mod output;
mod query;
mod repair;
mod schedule;
mod scratch;
mod server;
mod start;
mod table;
mod version;
mod wait;

use clap::{CommandFactory as _, FromArgMatches as _};
use error::Error;
use exit::Exit;
use output::{Format, Output, Times};
use std::{future::Future, process::ExitCode};

/// Orbit, a durable workflow service: server and command line in one program.
#[derive(Debug, clap::Parser)]
#[command(name = "orbit", version, after_help = exit::HELP, disable_help_subcommand = true, max_term_width = 100)]
struct CommandLine {
    /// Form of the results
    #[arg(
        short,
        long,
        global = true,
        env = "ORBIT_OUTPUT",
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: Format,
    /// Form of times in tables
    #[arg(long, global = true, env = "ORBIT_TIME", value_enum, value_name = "FORM", default_value = "relative")]
    time: Times,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Server(server::Server),
    Dev(server::Dev),
    Validate(definition::Validate),
    Deploy(definition::Deploy),
    /// Makes code from definitions.
    #[command(subcommand)]
    Generate(generate::Generate),
    Start(start::Start),
    Get(execution::Get),
    Explain(explain::Explain),
    #[command(visible_alias = "ls")]
    List(list::List),
    History(history::History),
    Signal(execution::Signal),
    Query(query::Query),
    Cancel(execution::Cancel),
    Terminate(execution::Terminate),
    Pause(repair::Pause),
    Resume(repair::Resume),
    Retry(repair::Retry),
    Rerun(repair::Rerun),
    Delete(execution::Delete),
    /// Acts on many executions at once.
    #[command(subcommand)]
    Batch(batch::BatchCommand),
    /// Starts executions at given times.
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    /// Looks at workers.
    #[command(subcommand)]
    Worker(Worker),
    #[command(subcommand)]
    Migrate(migrate::Migrate),
    Bench(bench::Bench),
    Version(version::Version),
}

#[derive(Debug, clap::Subcommand)]
enum Worker {
    #[command(visible_alias = "ls")]
    List(list::Workers),
}

/// Runs the program: reads the command line, does what it says, and tells how it ended.
#[must_use]
pub fn main() -> ExitCode {
    let matches = CommandLine::command().get_matches();
    let line = CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let output = Output::new(line.output, line.time);
    let exit = match run(line.command, output) {
        Ok(()) => Exit::Ok,
        Err(error) => {
            error.report(output, &server_named(&matches));
            error.exit()
        }
    };
    exit.into()
}

/// The server that a command was to talk to, as it was written; empty for commands that talk to none.
fn server_named(matches: &clap::ArgMatches) -> String {
    if let Some((_, matches)) = matches.subcommand() {
        return server_named(matches);
    }
    let values = matches.try_get_raw("server").ok().flatten();
    values.and_then(|mut values| values.next()).map(|value| value.to_string_lossy().into_owned()).unwrap_or_default()
}

fn run(command: Command, output: Output) -> Result<(), Error> {
    match command {
        Command::Server(server) => server.run(output),
        Command::Dev(dev) => dev.run(output),
        Command::Bench(bench) => bench.run(output),
        Command::Validate(validate) => validate.run(output),
        Command::Generate(generate) => generate.run(output),
        Command::Version(version) => version.run(output),
        Command::Migrate(migrate) => call(migrate.run(output)),
        Command::Deploy(deploy) => call(deploy.run(output)),
        Command::Start(start) => call(start.run(output)),
        Command::Get(get) => call(get.run(output)),
        Command::Explain(explain) => call(explain.run(output)),
        Command::List(list) => call(list.run(output)),
        Command::History(history) => call(history.run(output)),
        Command::Signal(signal) => call(signal.run(output)),
        Command::Query(query) => call(query.run(output)),
        Command::Cancel(cancel) => call(cancel.run(output)),
        Command::Terminate(terminate) => call(terminate.run(output)),
        Command::Pause(pause) => call(pause.run(output)),
        Command::Resume(resume) => call(resume.run(output)),
        Command::Retry(retry) => call(retry.run(output)),
        Command::Rerun(rerun) => call(rerun.run(output)),
        Command::Delete(delete) => call(delete.run(output)),
        Command::Batch(batch) => call(batch.run(output)),
        Command::Schedule(schedule) => call(schedule.run(output)),
        Command::Worker(Worker::List(workers)) => call(workers.run(output)),
    }
}

/// Runs what calls a server: one thread is enough for one caller.
fn call(work: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::failure(format!("cannot start the runtime: {error}")))?
        .block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn every_option_says_what_it_is_for() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} has no description", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} of {}", argument.get_id(), command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&CommandLine::command());
    }
}
