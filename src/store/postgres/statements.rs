//! The statements that both databases share, as PostgreSQL takes them: a list of rows is an array for each column.

use crate::store::sql::{Connection, Dialect, List, Rows, Value, Values};
use futures_util::future::BoxFuture;
use sqlx::{
    Arguments as _, SqlSafeStr,
    postgres::{PgArguments, PgConnection, PgRow},
};

impl Connection for PgConnection {
    type Row = PgRow;

    const DIALECT: Dialect = Dialect::Postgres;

    fn rows(&mut self, sql: impl SqlSafeStr, values: Values) -> BoxFuture<'_, sqlx::Result<Vec<PgRow>>> {
        Box::pin(sqlx::query_with(sql, arguments(&values)).fetch_all(self))
    }

    fn rows_of_many(&mut self, statement: &'static Rows, list: List) -> BoxFuture<'_, sqlx::Result<Vec<PgRow>>> {
        if list.is_empty() {
            return Box::pin(async { Ok(Vec::new()) });
        }
        Box::pin(sqlx::query_with(statement.with_arrays(), arrays(&list)).fetch_all(self))
    }
}

/// Runs a statement; answers how many rows it changed.
pub(super) fn run<'c>(
    connection: &'c mut PgConnection,
    sql: impl SqlSafeStr,
    values: &Values,
) -> BoxFuture<'c, sqlx::Result<u64>> {
    let query = sqlx::query_with(sql, arguments(values));
    Box::pin(async move { Ok(query.execute(connection).await?.rows_affected()) })
}

/// Runs a statement over a list; answers how many rows it changed.
pub(super) fn run_many<'c>(
    connection: &'c mut PgConnection,
    statement: &'static Rows,
    list: &List,
) -> BoxFuture<'c, sqlx::Result<u64>> {
    if list.is_empty() {
        return Box::pin(async { Ok(0) });
    }
    let query = sqlx::query_with(statement.with_arrays(), arrays(list));
    Box::pin(async move { Ok(query.execute(connection).await?.rows_affected()) })
}

/// Why encoding cannot fail.
const ENCODES: &str = "integers, text, bytes and lists of them always encode";

fn arguments(values: &Values) -> PgArguments {
    let mut arguments = PgArguments::default();
    for value in &values.0 {
        let added = match value {
            Value::Integer(value) => arguments.add(value),
            Value::Text(value) => arguments.add(value.as_deref()),
            Value::Bytes(value) => arguments.add(value.as_deref()),
        };
        added.expect(ENCODES);
    }
    arguments
}

fn arrays(list: &List) -> PgArguments {
    let mut arguments = PgArguments::default();
    for column in list.columns() {
        let column: Vec<&Value> = column.collect();
        let added = match column[..] {
            [] => unreachable!("a list that is used is not empty"),
            [Value::Integer(_), ..] => arguments.add(array(&column, |value| match value {
                Value::Integer(value) => Some(*value),
                Value::Text(_) | Value::Bytes(_) => None,
            })),
            [Value::Text(_), ..] => arguments.add(array(&column, |value| match value {
                Value::Text(value) => Some(value.as_deref()),
                Value::Integer(_) | Value::Bytes(_) => None,
            })),
            [Value::Bytes(_), ..] => arguments.add(array(&column, |value| match value {
                Value::Bytes(value) => Some(value.as_deref()),
                Value::Integer(_) | Value::Text(_) => None,
            })),
        };
        added.expect(ENCODES);
    }
    arguments
}

fn array<'v, T>(column: &[&'v Value], of_the_kind: impl Fn(&'v Value) -> Option<T>) -> Vec<T> {
    column.iter().map(|value| of_the_kind(value).expect("a column has values of one kind")).collect()
}
