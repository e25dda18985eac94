//! Parses and type-checks sources with the library.

use super::{compile::CompileError, function};
use crate::domain::definition::{
    VARIABLE_DEFAULT,
    fields::{list, nearest},
    references::References,
};
use cel_core::{BinaryOp, CelType, CheckErrorKind, Env, Expr, Spanned, SpannedExpr, UnaryOp};
use std::sync::LazyLock;

/// What stands for the `for_each` variable, whatever its name: no source can write this.
const VARIABLE: &str = "@item";

/// Every name and function. Which names a place may mention is found when the tree is compiled.
static ENVIRONMENT: LazyLock<Env> = LazyLock::new(|| {
    let functions = function::declare(Env::with_standard_library());
    let names = ["input", "steps", "execution", "signal", "event", "failure", "schedule", VARIABLE];
    names.into_iter().fold(functions, |environment, name| environment.with_variable(name, CelType::Dyn))
});

/// Parses and type-checks.
pub(super) fn parse(source: &str, references: &References<'_>) -> Result<SpannedExpr, Vec<CompileError>> {
    let environment = &*ENVIRONMENT;
    let error = |message: String, offset: usize| CompileError::expression(offset.min(source.len()), message);
    let parsed = environment.parse(source);
    let root = match parsed.ast {
        Some(root) if parsed.errors.is_empty() => root,
        _ if parsed.errors.is_empty() => return Err(vec![error("the expression cannot be read".to_owned(), 0)]),
        _ => return Err(parsed.errors.into_iter().map(|fault| error(fault.message, fault.span.start)).collect()),
    };
    let mut checked = root.clone();
    Loosener { variable: references.variable, next_id: i64::MAX / 2 }.node(&mut checked);
    let faults = environment.check(&checked).errors;
    let mut errors: Vec<CompileError> = faults
        .iter()
        .map(|fault| CompileError { hint: hint(&fault.kind, references), ..error(fault.message(), fault.span.start) })
        .collect();
    // What is said second about one place follows from what was said first.
    errors.dedup_by_key(|error| error.offset);
    if errors.is_empty() { Ok(root) } else { Err(errors) }
}

/// What to do about an unknown name.
fn hint(kind: &CheckErrorKind, references: &References<'_>) -> String {
    match kind {
        CheckErrorKind::UndeclaredReference { name, .. } => {
            let names = references.names();
            match nearest(name, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if name == VARIABLE_DEFAULT => "a step with `for_each` has an item".to_owned(),
                None => format!("in scope are {}; names of functions are CEL's", list(&names)),
            }
        }
        _ => String::new(),
    }
}

/// Makes a tree fit the type checker, which alone reads it.
struct Loosener<'a> {
    /// Name of the `for_each` variable.
    variable: Option<&'a str>,
    next_id: i64,
}

impl Loosener<'_> {
    fn node(&mut self, node: &mut SpannedExpr) {
        for child in children(node) {
            self.node(child);
        }
        match &mut node.node {
            Expr::Ident(name) | Expr::RootIdent(name) => self.rename(name),
            Expr::Comprehension(comprehension) => {
                self.rename(&mut comprehension.iter_var);
                self.rename(&mut comprehension.iter_var2);
            }
            Expr::Bind { var_name, .. } => self.rename(var_name),
            _ => {}
        }
        let is_computed = matches!(node.node, Expr::Index { .. } | Expr::Binary { .. } | Expr::Unary { .. });
        if is_computed && may_be_dynamic(node) || is_of_many_types(node) {
            self.wrap(node);
        }
    }

    /// Wraps a node as `dyn(…)`. Without, the checker takes an element of something dynamic for one of an unknown but
    /// fixed type, the sum of two dynamic values for a map, the last of what `+` can give, and `math.abs` of one for a
    /// number of the last kind; then it refuses what is done with them.
    fn wrap(&mut self, node: &mut SpannedExpr) {
        let span = node.span.clone();
        let mut make = |expr: Expr| {
            self.next_id += 1;
            Spanned::new(self.next_id, expr, span.clone())
        };
        let function = Box::new(make(Expr::Ident("dyn".to_owned())));
        let wrapped = std::mem::replace(node, make(Expr::Null));
        node.node = Expr::Call { expr: function, args: vec![wrapped] };
    }

    /// Gives the `for_each` variable the name that is declared, and so does for what hides it.
    fn rename(&self, name: &mut String) {
        if self.variable == Some(name.as_str()) {
            VARIABLE.clone_into(name);
        }
    }
}

/// Whether it is a call of a function of numbers, which gives what it takes: the checker guesses one of the types.
fn is_of_many_types(node: &SpannedExpr) -> bool {
    let Expr::Call { expr, args } = &node.node else { return false };
    let Expr::Member { expr: of, field, .. } = &expr.node else { return false };
    let is_math = matches!(&of.node, Expr::Ident(name) | Expr::RootIdent(name) if name == "math");
    (is_math && args.iter().any(may_be_dynamic)) || field == "sum"
}

/// Whether only the evaluation may tell the type: of names, and of arithmetic with nothing but such operands.
fn may_be_dynamic(node: &SpannedExpr) -> bool {
    match &node.node {
        Expr::Ident(_) | Expr::RootIdent(_) | Expr::Member { .. } | Expr::Index { .. } | Expr::Call { .. } => true,
        Expr::Unary { op: UnaryOp::Neg, expr } => may_be_dynamic(expr),
        Expr::Binary {
            op: BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Mod,
            left,
            right,
        } => may_be_dynamic(left) && may_be_dynamic(right),
        Expr::Ternary { then_expr, else_expr, .. } => may_be_dynamic(then_expr) || may_be_dynamic(else_expr),
        Expr::Bind { body, .. } => may_be_dynamic(body),
        _ => false,
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
        Expr::Call { expr, args } => {
            // The name of a function is none of a variable.
            let is_name = matches!(expr.node, Expr::Ident(_) | Expr::RootIdent(_));
            (!is_name).then_some(&mut **expr).into_iter().chain(args).collect()
        }
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
