//! Queries: templates of the definition over what an execution has done so far.
//!
//! A query changes nothing and needs nothing to run; a closed execution answers as an open one does.

use super::{Payload, State};

/// Why a query has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The definition declares no such query.
    #[error("the definition declares no query {name:?}{}", among(declared))]
    NotFound {
        /// The name that was given.
        name: String,
        /// The names that it declares, in order, with commas between.
        declared: String,
    },
    /// Its template cannot be evaluated on the state as it is.
    #[error("query {name:?} cannot be evaluated: {why}")]
    Failed {
        /// The query.
        name: String,
        /// What cannot be evaluated, and where.
        why: String,
    },
}

fn among(declared: &str) -> String {
    if declared.is_empty() { String::new() } else { format!("; it declares {declared}") }
}

/// Evaluates a query on a state.
///
/// # Errors
/// [`QueryError`]: the definition declares no such query, or its template fails on this state.
pub fn evaluate(state: &State, name: &str) -> Result<Payload, QueryError> {
    let queries = &state.definition().queries;
    let Some(template) = queries.get(name) else {
        let declared: Vec<&str> = queries.keys().map(AsRef::as_ref).collect();
        return Err(QueryError::NotFound { name: name.to_owned(), declared: declared.join(", ") });
    };
    let result = template.evaluate(&state.scope());
    result.map_err(|error| QueryError::Failed { name: name.to_owned(), why: error.to_string() })
}
