//! Asks one execution: `query`.

use super::{
    client::{Connection, call},
    error::Error,
    execution::{Name, json_text},
    output::Output,
};
use crate::proto::admin::QueryExecutionRequest;

/// Evaluates a query of an execution's definition and prints what it gives, as JSON.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  orbit query order-42 shipped\n\nIt works on closed executions, too.")]
pub(super) struct Query {
    #[command(flatten)]
    execution: Name,
    /// Name of a query that the definition declares
    query: String,
    #[command(flatten)]
    connection: Connection,
}

impl Query {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let (id, uid) = self.execution.parts();
        let request = QueryExecutionRequest { id, uid, query: self.query };
        let response = self.connection.admin().query_execution(call(request)).await?.into_inner();
        if output.is_json() {
            return output.json(&response);
        }
        output.line(&json_text(response.result.as_ref()))
    }
}
