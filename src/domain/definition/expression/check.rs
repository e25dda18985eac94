//! Parses and type-checks sources with the library.

use super::{compile::CompileError, function};
use crate::domain::definition::fields::{list, nearest};
use cel_core::{CelType, CheckErrorKind, Env, Expr, Spanned, SpannedExpr};
use std::sync::LazyLock;

/// The names that every expression can mention.
const NAMES: [&str; 3] = ["input", "steps", "execution"];

/// The names and functions of every expression, without and with `signal`.
static ENVIRONMENTS: LazyLock<[Env; 2]> = LazyLock::new(|| {
    let functions = function::declare(Env::with_standard_library());
    let plain = NAMES.into_iter().fold(functions, |environment, name| environment.with_variable(name, CelType::Dyn));
    let with_signal = plain.clone().with_variable("signal", CelType::Dyn);
    [plain, with_signal]
});

/// Parses and type-checks.
pub(super) fn parse(source: &str, with_signal: bool) -> Result<SpannedExpr, Vec<CompileError>> {
    let environment = &ENVIRONMENTS[usize::from(with_signal)];
    let error = |message: String, offset: usize| CompileError::expression(offset.min(source.len()), message);
    let parsed = environment.parse(source);
    let root = match parsed.ast {
        Some(root) if parsed.errors.is_empty() => root,
        _ if parsed.errors.is_empty() => return Err(vec![error("the expression cannot be read".to_owned(), 0)]),
        _ => return Err(parsed.errors.into_iter().map(|fault| error(fault.message, fault.span.start)).collect()),
    };
    let mut checked = root.clone();
    let mut next_id = i64::MAX / 2;
    loosen(&mut checked, &mut next_id);
    let faults = environment.check(&checked).errors;
    let mut errors: Vec<CompileError> = faults
        .iter()
        .map(|fault| CompileError { hint: hint(&fault.kind), ..error(fault.message(), fault.span.start) })
        .collect();
    // What is said second about one place follows from what was said first.
    errors.dedup_by_key(|error| error.offset);
    if errors.is_empty() { Ok(root) } else { Err(errors) }
}

/// What to do about an unknown name.
fn hint(kind: &CheckErrorKind) -> String {
    match kind {
        CheckErrorKind::UndeclaredReference { name, .. } => match nearest(name, NAMES.into_iter()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("in scope are {}; names of functions are CEL's", list(&NAMES)),
        },
        _ => String::new(),
    }
}

/// Wraps each `a[b]` as `dyn(a[b])`, for the type checker only: it takes an element of something dynamic for one of an
/// unknown but fixed type, and refuses its fields.
fn loosen(node: &mut SpannedExpr, next_id: &mut i64) {
    for child in children(node) {
        loosen(child, next_id);
    }
    if matches!(node.node, Expr::Index { .. }) {
        let span = node.span.clone();
        let mut make = |expr: Expr| {
            *next_id += 1;
            Spanned::new(*next_id, expr, span.clone())
        };
        let function = Box::new(make(Expr::Ident("dyn".to_owned())));
        let index = std::mem::replace(node, make(Expr::Null));
        node.node = Expr::Call { expr: function, args: vec![index] };
    }
}

fn children(node: &mut SpannedExpr) -> Vec<&mut SpannedExpr> {
    match &mut node.node {
        Expr::Null
        | Expr::Bool(_)
        | Expr::Int(_)
        | Expr::UInt(_)
        | Expr::Float(_)
        | Expr::String(_)
        | Expr::Bytes(_)
        | Expr::Ident(_)
        | Expr::RootIdent(_)
        | Expr::Error => Vec::new(),
        Expr::List(items) => items.iter_mut().map(|item| &mut item.expr).collect(),
        Expr::Map(entries) => entries.iter_mut().flat_map(|entry| [&mut entry.key, &mut entry.value]).collect(),
        Expr::Unary { expr, .. } | Expr::Member { expr, .. } | Expr::MemberTestOnly { expr, .. } => vec![&mut **expr],
        Expr::Binary { left, right, .. } => vec![&mut **left, &mut **right],
        Expr::Ternary { cond, then_expr, else_expr } => vec![&mut **cond, &mut **then_expr, &mut **else_expr],
        Expr::Index { expr, index, .. } => vec![&mut **expr, &mut **index],
        Expr::Call { expr, args } => std::iter::once(&mut **expr).chain(args).collect(),
        Expr::Struct { type_name, fields } => {
            std::iter::once(&mut **type_name).chain(fields.iter_mut().map(|field| &mut field.value)).collect()
        }
        Expr::Comprehension(comprehension) => vec![
            &mut *comprehension.iter_range,
            &mut *comprehension.accu_init,
            &mut *comprehension.loop_condition,
            &mut *comprehension.loop_step,
            &mut *comprehension.result,
        ],
        Expr::Bind { init, body, .. } => vec![&mut **init, &mut **body],
    }
}
