//! The functions of expressions: CEL's own and its string and math extensions from the library, lists from here.
//!
//! The library's functions trust their arguments; what could panic or grow without bound is refused before the call.

use super::{
    Budget, Problem,
    evaluate::{no_overload, symbol},
};
use crate::domain::{PAYLOAD_BYTES_MAX, definition::fault::shorten};
use cel_core::{
    Activation, Ast, BinaryOp, CelType, Env, EvalErrorKind, Expr, FunctionDecl, MapKey, OverloadDecl, Spanned,
    SpannedExpr, Value,
    ext::{math_extension, string_extension},
};
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, LazyLock},
};

/// Most bytes of a regular expression, counted repetitions multiplied out.
const PATTERN_MAX: usize = 10_000;

/// Characters of the library's messages that are passed on: some quote their arguments.
const MESSAGE_CHARACTERS_MAX: usize = 200;

/// Most decimals of a number in `format`.
const DECIMALS_MAX: usize = 100;

/// The functions that are built here, with the arguments that they take; a method's receiver counts.
const OWN: [(&str, Own, bool, std::ops::RangeInclusive<usize>); 9] = [
    ("size", Own::Size, true, 1..=1),
    ("sum", Own::Sum, true, 1..=1),
    ("join", Own::Join, true, 1..=2),
    ("slice", Own::Slice, true, 3..=3),
    ("flatten", Own::Flatten, true, 1..=2),
    ("distinct", Own::Distinct, true, 1..=1),
    ("sort", Own::Sort, true, 1..=1),
    ("reverse", Own::Reverse, true, 1..=1),
    ("lists.range", Own::Range, false, 1..=1),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    Size,
    Sum,
    Join,
    Slice,
    Flatten,
    Distinct,
    Sort,
    Reverse,
    Range,
}

/// Adds the declarations, which the type checker reads.
pub(super) fn declare(environment: Env) -> Env {
    let list = || CelType::list(CelType::Dyn);
    let method = |name: &str, arguments: Vec<CelType>, result: CelType| {
        let overload = OverloadDecl::method(format!("orbit_{name}_{}", arguments.len()), arguments, result);
        FunctionDecl::new(name).with_overload(overload)
    };
    environment.with_extension(string_extension()).with_extension(math_extension()).with_extension([
        method("sum", vec![list()], CelType::Dyn),
        method("slice", vec![list(), CelType::Int, CelType::Int], list()),
        method("flatten", vec![list()], list()),
        method("flatten", vec![list(), CelType::Int], list()),
        method("distinct", vec![list()], list()),
        method("sort", vec![list()], list()),
        method("reverse", vec![list()], list()),
        FunctionDecl::new("lists.range").with_overload(OverloadDecl::function(
            "orbit_lists_range",
            vec![CelType::Int],
            CelType::list(CelType::Int),
        )),
    ])
}

/// Whether `space.name` is a function's name, not a method of a value.
pub(super) fn is_namespaced(space: &str, name: &str) -> bool {
    matches!(space, "math" | "strings") || (space == "lists" && name == "range")
}

/// A function that a compiled expression calls.
#[derive(Clone)]
pub(super) struct Function {
    name: Arc<str>,
    own: Option<Own>,
    /// The library's function, applied to the variables `@0`, `@1`, …
    program: cel_core::Program,
}

impl Function {
    /// Finds a function by its name. `arguments` counts a method's receiver. The type checker has seen the call, so
    /// whatever is not built here is one of the library's.
    pub(super) fn find(name: &str, is_method: bool, arguments: usize) -> Option<Self> {
        let own = OWN
            .iter()
            .find(|(known, _, method, count)| {
                *known == name && (*method == is_method || *known == "size") && count.contains(&arguments)
            })
            .map(|(_, own, _, _)| *own);
        let callee = if is_method {
            Expr::Member { expr: Box::new(variable(0)), field: name.to_owned(), optional: false }
        } else {
            match name.split_once('.') {
                Some((space, field)) => Expr::Member {
                    expr: Box::new(node(Expr::Ident(space.to_owned()))),
                    field: field.to_owned(),
                    optional: false,
                },
                None => Expr::Ident(name.to_owned()),
            }
        };
        let first = usize::from(is_method);
        let call = Expr::Call { expr: Box::new(node(callee)), args: (first..arguments).map(variable).collect() };
        Some(Self { name: Arc::from(name), own, program: (LIBRARY.program)(call) })
    }

    /// Calls the function.
    pub(super) fn call(&self, arguments: &[Value], budget: &mut Budget) -> Result<Value, Problem> {
        match self.own {
            Some(Own::Size) => size(arguments, budget),
            Some(Own::Sum) => sum(arguments, budget),
            Some(Own::Join) => join(arguments, budget),
            Some(Own::Slice) => slice(arguments, budget),
            Some(Own::Flatten) => flatten(arguments, budget),
            Some(Own::Distinct) => distinct(arguments, budget),
            Some(Own::Sort) => sort(arguments, budget),
            Some(Own::Range) => range(arguments, budget),
            Some(Own::Reverse) => match arguments {
                [Value::List(items)] => {
                    budget.spend(items.len())?;
                    Ok(Value::List(items.iter().rev().cloned().collect()))
                }
                _ => self.library(arguments, budget),
            },
            None => self.library(arguments, budget),
        }
    }

    fn library(&self, arguments: &[Value], budget: &mut Budget) -> Result<Value, Problem> {
        for argument in arguments {
            weigh(argument, budget)?;
        }
        guard(&self.name, arguments, budget)?;
        run(&self.program, &self.name, arguments)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Pays for walking a value, shared parts as often as they are met.
pub(super) fn weigh(value: &Value, budget: &mut Budget) -> Result<(), Problem> {
    match value {
        Value::String(text) => budget.spend_bytes(text.len()),
        Value::Bytes(bytes) => budget.spend_bytes(bytes.len()),
        Value::List(items) => {
            budget.spend(1)?;
            items.iter().try_for_each(|item| weigh(item, budget))
        }
        Value::Map(map) => {
            budget.spend(1)?;
            map.values().try_for_each(|item| weigh(item, budget))
        }
        _ => budget.spend(1),
    }
}

/// Applies one of the library's operators.
pub(super) fn operator(operator: BinaryOp, left: Value, right: Value) -> Result<Value, Problem> {
    let program =
        LIBRARY.operators.get(symbol(operator)).expect("every operator that is not a comparison has a program");
    run(program, symbol(operator), &[left, right])
}

/// The library's functions and operators, ready to be applied to values.
struct Library {
    program: Box<dyn Fn(Expr) -> cel_core::Program + Send + Sync>,
    operators: HashMap<&'static str, cel_core::Program>,
}

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let environment = declare(Env::with_standard_library());
    let ast = |root: Expr| Ast::new_unchecked(node(root), "");
    let any = environment.program(&ast(Expr::Null)).expect("a program of null needs nothing");
    // The registry's type has no public name; a closure can hold it all the same, so all programs share one.
    let functions = Arc::new(any.functions().clone());
    let program =
        move |root: Expr| cel_core::Program::new(Arc::new(Ast::new_unchecked(node(root), "")), functions.clone());
    let operators = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Mod, BinaryOp::In]
        .into_iter()
        .map(|op| (symbol(op), program(Expr::Binary { op, left: Box::new(variable(0)), right: Box::new(variable(1)) })))
        .collect();
    Library { program: Box::new(program), operators }
});

fn node(expr: Expr) -> SpannedExpr {
    Spanned::new(0, expr, 0..0)
}

/// Names that no source can contain.
const VARIABLES: [&str; 8] = ["@0", "@1", "@2", "@3", "@4", "@5", "@6", "@7"];

fn variable(index: usize) -> SpannedExpr {
    node(Expr::Ident(VARIABLES.get(index).map_or_else(|| format!("@{index}"), |name| (*name).to_owned())))
}

struct Arguments<'a>(&'a [Value]);

impl Activation for Arguments<'_> {
    fn resolve(&self, name: &str) -> Option<Value> {
        self.0.get(name.strip_prefix('@')?.parse::<usize>().ok()?).cloned()
    }
}

fn run(program: &cel_core::Program, name: &str, arguments: &[Value]) -> Result<Value, Problem> {
    // A bug of the library may fail a step, not the server.
    let result = catch_unwind(AssertUnwindSafe(|| program.eval(&Arguments(arguments))))
        .map_err(|_| Problem::Failed(format!("`{name}` failed on its arguments")))?;
    match result {
        Value::Error(error) => Err(match error.kind {
            EvalErrorKind::NoMatchingOverload | EvalErrorKind::TypeMismatch | EvalErrorKind::UnknownFunction => {
                no_overload(name, &arguments.iter().collect::<Vec<_>>())
            }
            _ => Problem::Failed(format!("`{name}`: {}", shorten(&error.message, MESSAGE_CHARACTERS_MAX))),
        }),
        Value::String(text) if text.len() > PAYLOAD_BYTES_MAX => Err(Problem::TooLarge),
        value => Ok(value),
    }
}

/// Refuses arguments that the library's functions would take badly.
fn guard(name: &str, arguments: &[Value], budget: &mut Budget) -> Result<(), Problem> {
    match (name, arguments) {
        ("matches", [Value::String(text), Value::String(pattern)]) => {
            let weight = pattern_weight(pattern);
            if weight > PATTERN_MAX {
                return Err(Problem::Failed(format!(
                    "`matches`: the pattern is larger than {PATTERN_MAX} once its repetitions are written out"
                )));
            }
            // Matching is linear in the text, with a factor that grows with the pattern; compiling costs as well.
            budget.spend(1_000 + weight)?;
            budget.spend(weight.saturating_mul(text.len()) / 512)
        }
        ("replace", [Value::String(text), Value::String(old), Value::String(new), ..]) => {
            let count = text.len() / old.len().max(1) + 1;
            if new.len() > old.len() && text.len() + count.saturating_mul(new.len()) > PAYLOAD_BYTES_MAX {
                // The estimate is too coarse for a long text with few matches, so they are counted.
                let count = if old.is_empty() { text.chars().count() + 1 } else { text.matches(&**old).count() };
                if text.len() + count.saturating_mul(new.len()) > PAYLOAD_BYTES_MAX {
                    return Err(Problem::TooLarge);
                }
            }
            budget.spend_bytes(text.len())
        }
        ("split", [Value::String(text), ..]) => budget.spend(text.len()),
        ("format", [Value::String(format), ..]) => {
            let decimals = format.split("%.").skip(1).map(|rest| {
                let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                rest[..end].parse::<usize>().unwrap_or(if end == 0 { 0 } else { usize::MAX })
            });
            match decimals.max() {
                Some(decimals) if decimals > DECIMALS_MAX => {
                    Err(Problem::Failed(format!("`format`: more than {DECIMALS_MAX} decimals")))
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Length of a pattern with its counted repetitions multiplied out, as if they were nested: an upper bound.
fn pattern_weight(pattern: &str) -> usize {
    let repetitions = pattern.split('{').skip(1).map(|rest| {
        let inside = rest.split('}').next().unwrap_or("");
        inside.split(',').filter_map(|count| count.trim().parse::<usize>().ok()).max().unwrap_or(1).max(1)
    });
    repetitions.fold(pattern.len(), usize::saturating_mul)
}

fn refused(name: &str, arguments: &[Value]) -> Problem {
    no_overload(name, &arguments.iter().collect::<Vec<_>>())
}

fn length(count: usize) -> Value {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

fn size(arguments: &[Value], budget: &mut Budget) -> Result<Value, Problem> {
    match arguments {
        [Value::String(text)] => {
            budget.spend_bytes(text.len())?;
            Ok(length(text.chars().count()))
        }
        [Value::Bytes(bytes)] => Ok(length(bytes.len())),
        [Value::List(items)] => Ok(length(items.len())),
        [Value::Map(map)] => Ok(length(map.len())),
        _ => Err(refused("size", arguments)),
    }
}

fn sum(arguments: &[Value], budget: &mut Budget) -> Result<Value, Problem> {
    let [Value::List(items)] = arguments else { return Err(refused("sum", arguments)) };
    budget.spend(items.len())?;
    let mut items = items.iter();
    let Some(first) = items.next() else { return Ok(Value::Int(0)) };
    items
        .try_fold(first.clone(), |sum, item| match (&sum, item) {
            (Value::Int(a), Value::Int(b)) => a
                .checked_add(*b)
                .map(Value::Int)
                .ok_or_else(|| Problem::Failed("`sum`: the result does not fit 64 bits".to_owned())),
            (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
            (Value::UInt(_), Value::UInt(_)) | (Value::Duration(_), Value::Duration(_)) => {
                operator(BinaryOp::Add, sum.clone(), item.clone())
            }
            _ => Err(no_overload("sum", &[&sum, item])),
        })
        .and_then(|sum| match sum {
            Value::Int(_) | Value::UInt(_) | Value::Double(_) | Value::Duration(_) => Ok(sum),
            other => Err(no_overload("sum", &[&other])),
        })
}

fn join(arguments: &[Value], budget: &mut Budget) -> Result<Value, Problem> {
    let (items, separator) = match arguments {
        [Value::List(items)] => (items, ""),
        [Value::List(items), Value::String(separator)] => (items, &**separator),
        _ => return Err(refused("join", arguments)),
    };
    let mut out = String::new();
    for (index, item) in items.iter().enumerate() {
        let Value::String(text) = item else { return Err(no_overload("join", &[item])) };
        budget.spend_bytes(text.len() + separator.len())?;
        if index > 0 {
            out.push_str(separator);
        }
        out.push_str(text);
        if out.len() > PAYLOAD_BYTES_MAX {
            return Err(Problem::TooLarge);
        }
    }
    Ok(Value::String(Arc::from(out)))
}

fn slice(arguments: &[Value], budget: &mut Budget) -> Result<Value, Problem> {
    let [Value::List(items), Value::Int(from), Value::Int(to)] = arguments else {
        return Err(refused("slice", arguments));
    };
    budget.spend(items.len())?;
    let range = usize::try_from(*from).ok().zip(usize::try_from(*to).ok());
    let part = range.and_then(|(from, to)| items.get(from..to));
    part.map(|part| Value::List(Arc::from(part)))
        .ok_or_else(|| Problem::Failed(format!("`slice`: {from} to {to} is not within 0 to {}", items.len())))
}

fn flatten(arguments: &[Value], budget: &mut Budget) -> Result<Value, Problem> {
    let (items, depth) = match arguments {
        [Value::List(items)] => (items, 1),
        [Value::List(items), Value::Int(depth)] if (0..=64).contains(depth) => (items, *depth),
        _ => return Err(refused("flatten", arguments)),
    };
    fn append(out: &mut Vec<Value>, items: &[Value], depth: i64, budget: &mut Budget) -> Result<(), Problem> {
        for item in items {
            budget.spend(1)?;
            match item {
                Value::List(inner) if depth > 0 => append(out, inner, depth - 1, budget)?,
                _ => out.push(item.clone()),
            }
        }
        Ok(())
    }
    let mut out = Vec::new();
    append(&mut out, items, depth, budget)?;
    Ok(Value::List(Arc::from(out)))
}

fn distinct(arguments: &[Value], budget: &mut Budget) -> Result<Value, Problem> {
    let [Value::List(items)] = arguments else { return Err(refused("distinct", arguments)) };
    let mut keys = BTreeSet::new();
    let mut out: Vec<Value> = Vec::new();
    // Where `out` holds what has no key of its own; only those need comparing one by one.
    let mut others = Vec::new();
    for item in items.iter() {
        weigh(item, budget)?;
        let is_new = match item {
            Value::String(_) | Value::Bool(_) => MapKey::from_value(item).is_some_and(|key| keys.insert(key)),
            _ => {
                let mut found = false;
                for known in &others {
                    let known: &Value = &out[*known];
                    weigh(known, budget)?;
                    found = known == item;
                    if found {
                        break;
                    }
                }
                if !found {
                    others.push(out.len());
                }
                !found
            }
        };
        if is_new {
            out.push(item.clone());
        }
    }
    Ok(Value::List(Arc::from(out)))
}

fn sort(arguments: &[Value], budget: &mut Budget) -> Result<Value, Problem> {
    let [Value::List(items)] = arguments else { return Err(refused("sort", arguments)) };
    weigh(&arguments[0], budget)?;
    budget.spend(items.len().saturating_mul(usize::try_from(items.len().max(1).ilog2()).unwrap_or(0)))?;
    // An order must exist before sorting: a comparison that fails half-way would leave none.
    for pair in items.windows(2) {
        let comparable =
            std::mem::discriminant(&pair[0]) == std::mem::discriminant(&pair[1]) && pair[0].compare(&pair[1]).is_some();
        if !comparable {
            return Err(no_overload("sort", &[&pair[0], &pair[1]]));
        }
    }
    let mut out = items.to_vec();
    out.sort_by(|left, right| left.compare(right).unwrap_or(std::cmp::Ordering::Equal));
    Ok(Value::List(Arc::from(out)))
}

fn range(arguments: &[Value], budget: &mut Budget) -> Result<Value, Problem> {
    let [Value::Int(count)] = arguments else { return Err(refused("lists.range", arguments)) };
    let length =
        usize::try_from(*count).map_err(|_| Problem::Failed("`lists.range`: a length is at least 0".to_owned()))?;
    budget.spend(length)?;
    Ok(Value::List((0..*count).map(Value::Int).collect()))
}
