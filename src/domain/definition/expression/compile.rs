//! Source to a tree that the evaluator walks.

use super::{
    EXPRESSION_BYTES_MAX, Expression, check,
    function::{self, Function},
    nesting::{self, DEPTH_MAX},
    path::{Path, Root, Segment},
};
use crate::domain::definition::{
    fields::list,
    references::{References, Refused},
};
use cel_core::{BinaryOp, ComprehensionData, Expr, SpannedExpr, UnaryOp, Value};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// Most comprehensions (`map`, `filter`, `all`, …) one inside the body of another.
const LOOPS_MAX: usize = 2;

/// Why an expression does not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::domain::definition) struct CompileError {
    /// What is wrong.
    pub(in crate::domain::definition) message: String,
    /// Byte offset in the source of the expression.
    pub(in crate::domain::definition) offset: usize,
    /// What to do about it; may be empty.
    pub(in crate::domain::definition) hint: String,
    /// What kind of fault it is.
    pub(in crate::domain::definition) kind: CompileErrorKind,
}

/// What kind of fault an expression has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain::definition) enum CompileErrorKind {
    /// The expression itself is wrong.
    Expression,
    /// The template around expressions is wrong.
    Template,
    /// It mentions a step that does not exist.
    UnknownStep,
    /// It mentions the step that it belongs to.
    OwnStep,
    /// It mentions a step that cannot be seen from there.
    OutOfScope,
}

impl CompileError {
    /// A fault of the expression itself.
    pub(super) fn expression(offset: usize, message: impl Into<String>) -> Self {
        Self { message: message.into(), offset, hint: String::new(), kind: CompileErrorKind::Expression }
    }

    /// A fault of the template around expressions.
    pub(super) fn template(offset: usize, message: impl Into<String>) -> Self {
        Self { message: message.into(), offset, hint: String::new(), kind: CompileErrorKind::Template }
    }

    /// A mention of a step that is none, or not to be seen.
    fn mention(offset: usize, id: &str, refused: Refused) -> Self {
        let (kind, message, hint) = match refused {
            Refused::Own => (CompileErrorKind::OwnStep, format!("the step `{id}` mentions itself"), String::new()),
            Refused::Unknown { hint } => (CompileErrorKind::UnknownStep, format!("there is no step `{id}`"), hint),
            Refused::OutOfScope { message, hint } => (CompileErrorKind::OutOfScope, message, hint.to_owned()),
        };
        Self { message, offset, hint, kind }
    }
}

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) code: Code,
    /// The distinct paths; each is looked up at most once per evaluation.
    pub(super) paths: Vec<Path>,
}

impl Program {
    /// The path, if the expression is nothing else.
    pub(super) fn as_path(&self) -> Option<&Path> {
        match &self.code {
            Code::Path(index) => self.paths.get(*index),
            _ => None,
        }
    }
}

/// One node. A local is the number of a slot in the evaluator's stack, fixed at compile time.
#[derive(Debug)]
pub(super) enum Code {
    Constant(Value),
    Path(usize),
    HasPath(usize),
    Local(usize),
    List(Vec<Code>),
    Map(Vec<(Code, Code)>),
    Not(Box<Code>),
    Negate(Box<Code>),
    And(Box<[Code; 2]>),
    Or(Box<[Code; 2]>),
    Choice(Box<[Code; 3]>),
    Binary(BinaryOp, Box<[Code; 2]>),
    Field(Box<Code>, Arc<str>),
    Has(Box<Code>, Arc<str>),
    Index(Box<[Code; 2]>),
    Call(Function, Vec<Code>),
    Collect(Box<Collect>),
    Fold(Box<Fold>),
    Bind(Box<[Code; 2]>),
}

/// `map`, `filter` and their kin: one result per element that passes the filter.
#[derive(Debug)]
pub(super) struct Collect {
    pub(super) range: Code,
    /// Whether each element binds an index or key before the element itself.
    pub(super) keyed: bool,
    pub(super) filter: Option<Code>,
    pub(super) key: Option<Code>,
    pub(super) item: Code,
}

/// `all`, `exists` and `exists_one`: slots are the accumulator, then as for [`Collect`].
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) range: Code,
    pub(super) keyed: bool,
    pub(super) start: Code,
    pub(super) condition: Code,
    pub(super) step: Code,
    pub(super) result: Code,
}

/// Compiles `source`, adding the steps that it mentions to `references`.
pub(in crate::domain::definition) fn compile(
    source: &str,
    references: &mut References<'_>,
) -> Result<Expression, Vec<CompileError>> {
    let fail = |offset: usize, message: String| vec![CompileError::expression(offset, message)];
    if source.trim().is_empty() {
        return Err(fail(0, "the expression is empty".to_owned()));
    }
    if source.len() > EXPRESSION_BYTES_MAX {
        return Err(fail(0, format!("the expression has {} bytes; one may have {EXPRESSION_BYTES_MAX}", source.len())));
    }
    nesting::check(source)
        .map_err(|deep| fail(deep.at, format!("the expression is nested more than {DEPTH_MAX} deep")))?;
    // A bug of the library in some odd source may cost that source its definition, not the server its life.
    let parsed = catch_unwind(AssertUnwindSafe(|| check::parse(source, references)));
    let root = parsed.map_err(|_| fail(0, "the expression cannot be compiled".to_owned()))??;
    let mut compiler = Compiler { references, paths: Vec::new(), locals: Vec::new(), loops: 0, errors: Vec::new() };
    let code = compiler.node(&root, 0);
    if compiler.errors.is_empty() {
        let program = Program { code, paths: compiler.paths };
        Ok(Expression { source: Arc::from(source), program: Arc::new(program) })
    } else {
        Err(compiler.errors)
    }
}

struct Compiler<'r, 'a> {
    references: &'r mut References<'a>,
    paths: Vec<Path>,
    /// Names of the slots, outermost first.
    locals: Vec<String>,
    loops: usize,
    errors: Vec<CompileError>,
}

impl Compiler<'_, '_> {
    fn fail(&mut self, node: &SpannedExpr, message: impl Into<String>) -> Code {
        self.errors.push(CompileError::expression(node.span.start, message));
        Code::Constant(Value::Null)
    }

    fn node(&mut self, node: &SpannedExpr, depth: usize) -> Code {
        if depth > DEPTH_MAX {
            return self.fail(node, format!("the expression is nested more than {DEPTH_MAX} deep"));
        }
        let below = depth + 1;
        match &node.node {
            Expr::Null => Code::Constant(Value::Null),
            Expr::Bool(flag) => Code::Constant(Value::Bool(*flag)),
            Expr::Int(number) => Code::Constant(Value::Int(*number)),
            Expr::UInt(number) => Code::Constant(Value::UInt(*number)),
            Expr::Float(number) => Code::Constant(Value::Double(*number)),
            Expr::String(text) => Code::Constant(Value::String(Arc::from(text.as_str()))),
            Expr::Bytes(bytes) => Code::Constant(Value::Bytes(Arc::from(bytes.as_slice()))),
            Expr::Ident(_) | Expr::RootIdent(_) => self.access(node, below),
            Expr::Member { optional: true, .. } | Expr::Index { optional: true, .. } => {
                self.fail(node, "optional fields (`.?`) are not part of the language; use `has(…) ? … : …`")
            }
            Expr::Member { .. } | Expr::Index { .. } => self.access(node, below),
            Expr::List(items) => {
                let items = items.iter().map(|item| {
                    if item.optional {
                        self.fail(&item.expr, "optional elements are not part of the language")
                    } else {
                        self.node(&item.expr, below)
                    }
                });
                Code::List(items.collect())
            }
            Expr::Map(entries) => {
                let entries = entries.iter().map(|entry| {
                    if entry.optional {
                        self.fail(&entry.key, "optional entries are not part of the language");
                    }
                    (self.node(&entry.key, below), self.node(&entry.value, below))
                });
                Code::Map(entries.collect())
            }
            Expr::Unary { op: UnaryOp::Not, expr } => Code::Not(Box::new(self.node(expr, below))),
            Expr::Unary { op: UnaryOp::Neg, expr } => Code::Negate(Box::new(self.node(expr, below))),
            Expr::Binary { op, left, right } => {
                let operands = Box::new([self.node(left, below), self.node(right, below)]);
                match op {
                    BinaryOp::And => Code::And(operands),
                    BinaryOp::Or => Code::Or(operands),
                    _ => Code::Binary(*op, operands),
                }
            }
            Expr::Ternary { cond, then_expr, else_expr } => Code::Choice(Box::new([
                self.node(cond, below),
                self.node(then_expr, below),
                self.node(else_expr, below),
            ])),
            Expr::Call { expr, args } => self.call(node, expr, args, below),
            Expr::Comprehension(comprehension) => self.comprehension(node, comprehension, below),
            Expr::MemberTestOnly { expr, field } => self.has(expr, field, below),
            Expr::Bind { var_name, init, body } => {
                let start = self.node(init, below);
                self.locals.push(var_name.clone());
                let body = self.node(body, below);
                self.locals.pop();
                Code::Bind(Box::new([start, body]))
            }
            Expr::Struct { .. } => self.fail(node, "message literals are not part of the language"),
            Expr::Error => self.fail(node, "the expression cannot be read"),
        }
    }

    /// A name, a field or an index: a path as far as it can be known now, a look into a value beyond that.
    fn access(&mut self, node: &SpannedExpr, depth: usize) -> Code {
        if let Some((name, segments)) = chain(node) {
            if let Some(slot) = self.slot(name) {
                if segments.is_empty() {
                    return Code::Local(slot);
                }
            } else if let Some(result) = self.rooted(node, name, &segments) {
                return result.map_or(Code::Constant(Value::Null), Code::Path);
            } else if segments.is_empty() {
                return match TYPES.iter().find(|known| **known == name) {
                    Some(known) => Code::Constant(Value::new_type(*known)),
                    None => self.fail(node, format!("unknown name `{name}`")),
                };
            }
        }
        match &node.node {
            Expr::Member { expr, field, .. } => {
                Code::Field(Box::new(self.node(expr, depth)), Arc::from(field.as_str()))
            }
            Expr::Index { expr, index, .. } => Code::Index(Box::new([self.node(expr, depth), self.node(index, depth)])),
            _ => self.fail(node, "unknown name"),
        }
    }

    fn slot(&self, name: &str) -> Option<usize> {
        self.locals.iter().rposition(|local| local == name)
    }

    /// Number of the path that begins at one of the scope's names; `None` if `name` is none of them, `Some(None)` if
    /// the path is wrong, which has been said.
    fn rooted(&mut self, node: &SpannedExpr, name: &str, segments: &[Segment]) -> Option<Option<usize>> {
        let member = |index: usize| match segments.get(index) {
            Some(Segment::Member(name)) => Some(&**name),
            Some(Segment::Element(_)) | None => None,
        };
        let (root, taken) = match name {
            "input" | "steps" | "execution" | "signal" | "event" | "failure" | "schedule"
                if !self.references.names().contains(&name) =>
            {
                let hint = match name {
                    "schedule" => "`schedule` is seen by the input of a schedule",
                    "input" | "steps" | "execution" => "the input of a schedule sees `schedule` alone",
                    "signal" => "`signal` is seen by the `match` of an `await`",
                    "event" => "`event` is seen by the steps under `handlers.on_event`",
                    _ => "`failure` is seen by the other steps under `handlers`",
                };
                let error = CompileError::expression(node.span.start, format!("`{name}` is not in scope here"));
                self.errors.push(CompileError { hint: hint.to_owned(), ..error });
                return Some(None);
            }
            "input" => (Root::Input, 0),
            "signal" => (Root::Signal, 0),
            "event" => (Root::Event, 0),
            "failure" => match member(0) {
                Some(field) if !FAILURE_FIELDS.contains(&field) => {
                    self.fail(node, format!("a failure has {}", list(&FAILURE_FIELDS)));
                    return Some(None);
                }
                Some(_) | None => (Root::Failure, 0),
            },
            _ if self.references.variable == Some(name) => match member(0) {
                Some("value") => (Root::ItemValue, 1),
                Some("index") => (Root::ItemIndex, 1),
                Some(_) | None => {
                    self.fail(node, format!("an item has `{name}.value` and `{name}.index`"));
                    return Some(None);
                }
            },
            "execution" => match member(0) {
                Some("id") => (Root::ExecutionId, 1),
                Some("run") => (Root::ExecutionRun, 1),
                Some("start_time") => (Root::ExecutionStartTime, 1),
                Some(_) | None => {
                    self.fail(node, "an execution has `execution.id`, `execution.run` and `execution.start_time`");
                    return Some(None);
                }
            },
            "schedule" => match member(0) {
                Some("id") => (Root::ScheduleId, 1),
                Some("nominal_time") => (Root::ScheduleNominalTime, 1),
                Some("start_time") => (Root::ScheduleStartTime, 1),
                Some(_) | None => {
                    self.fail(node, "a schedule has `schedule.id`, `schedule.nominal_time` and `schedule.start_time`");
                    return Some(None);
                }
            },
            "steps" => {
                let Some(id) = member(0) else {
                    self.fail(node, "name the step: `steps.ID.output`, `steps.ID.error` or `steps.ID.state`");
                    return Some(None);
                };
                let step = match self.references.mention(id) {
                    Ok(step) => step,
                    Err(refused) => {
                        self.errors.push(CompileError::mention(node.span.start, id, refused));
                        return Some(None);
                    }
                };
                let root = match member(1) {
                    Some("output") => Root::Output(step),
                    Some("error") => Root::Error(step),
                    Some("state") => Root::State(step),
                    Some(_) | None => {
                        self.fail(
                            node,
                            format!("a step has `steps.{id}.output`, `steps.{id}.error` and `steps.{id}.state`"),
                        );
                        return Some(None);
                    }
                };
                (root, 2)
            }
            _ => return None,
        };
        let mut root_text = name.to_owned();
        for segment in &segments[..taken] {
            if let Segment::Member(name) = segment {
                root_text.push('.');
                root_text.push_str(name);
            }
        }
        let path = Path { root, root_text: Arc::from(root_text), segments: segments[taken..].to_vec() };
        let index = self.paths.iter().position(|known| *known == path).unwrap_or_else(|| {
            self.paths.push(path);
            self.paths.len() - 1
        });
        Some(Some(index))
    }

    fn has(&mut self, expr: &SpannedExpr, field: &str, depth: usize) -> Code {
        if let Some((name, mut segments)) = chain(expr)
            && self.slot(name).is_none()
        {
            segments.push(Segment::Member(Arc::from(field)));
            if let Some(result) = self.rooted(expr, name, &segments) {
                return result.map_or(Code::Constant(Value::Null), Code::HasPath);
            }
        }
        Code::Has(Box::new(self.node(expr, depth)), Arc::from(field))
    }

    fn call(&mut self, node: &SpannedExpr, callee: &SpannedExpr, arguments: &[SpannedExpr], depth: usize) -> Code {
        let (name, receiver) = match &callee.node {
            Expr::Ident(name) | Expr::RootIdent(name) => (name.clone(), None),
            Expr::Member { expr, field, optional: false } => match &expr.node {
                Expr::Ident(space) if self.slot(space).is_none() && function::is_namespaced(space, field) => {
                    (format!("{space}.{field}"), None)
                }
                _ => (field.clone(), Some(expr)),
            },
            _ => return self.fail(node, "only functions can be called"),
        };
        let mut values = Vec::with_capacity(arguments.len() + 1);
        values.extend(receiver.map(|receiver| self.node(receiver, depth)));
        for argument in arguments {
            values.push(self.node(argument, depth));
        }
        match Function::find(&name, receiver.is_some(), values.len()) {
            Some(function) => Code::Call(function, values),
            None => self.fail(node, format!("unknown function `{name}`")),
        }
    }

    fn comprehension(&mut self, node: &SpannedExpr, comprehension: &ComprehensionData, depth: usize) -> Code {
        let range = self.node(&comprehension.iter_range, depth);
        self.loops += 1;
        if self.loops > LOOPS_MAX {
            self.loops -= 1;
            return self.fail(
                node,
                format!("more than {LOOPS_MAX} of `map`, `filter`, `all` and their like, one inside the other"),
            );
        }
        let keyed = !comprehension.iter_var2.is_empty();
        let mut names = vec![comprehension.iter_var.clone()];
        names.extend(keyed.then(|| comprehension.iter_var2.clone()));
        let base = self.locals.len();
        let code = if let Some(appended) = appended(comprehension) {
            self.locals.extend(names);
            let filter = appended.filter.map(|filter| self.node(filter, depth));
            let key = appended.key.map(|key| self.node(key, depth));
            let item = self.node(appended.item, depth);
            Code::Collect(Box::new(Collect { range, keyed, filter, key, item }))
        } else {
            let start = self.node(&comprehension.accu_init, depth);
            self.locals.push(comprehension.accu_var.clone());
            self.locals.extend(names);
            let condition = self.node(&comprehension.loop_condition, depth);
            let step = self.node(&comprehension.loop_step, depth);
            self.locals.truncate(base + 1);
            let result = self.node(&comprehension.result, depth);
            Code::Fold(Box::new(Fold { range, keyed, start, condition, step, result }))
        };
        self.locals.truncate(base);
        self.loops -= 1;
        code
    }
}

/// What `failure` has.
const FAILURE_FIELDS: [&str; 4] = ["code", "message", "details", "unit"];

/// Names of types, for `type(x) == int`.
pub(super) const TYPES: [&str; 10] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"];

/// The name that a chain of fields and constant indices begins with, and the chain.
fn chain(node: &SpannedExpr) -> Option<(&str, Vec<Segment>)> {
    let mut segments = Vec::new();
    let mut node = node;
    loop {
        node = match &node.node {
            Expr::Ident(name) | Expr::RootIdent(name) => {
                segments.reverse();
                return Some((name, segments));
            }
            Expr::Member { expr, field, optional: false } => {
                segments.push(Segment::Member(Arc::from(field.as_str())));
                expr
            }
            Expr::Index { expr, index, optional: false } => {
                segments.push(match &index.node {
                    Expr::String(name) => Segment::Member(Arc::from(name.as_str())),
                    Expr::Int(element) => Segment::Element(usize::try_from(*element).ok()?),
                    _ => return None,
                });
                expr
            }
            _ => return None,
        };
    }
}

/// The parts of a comprehension that only appends to a list or map.
struct Appended<'e> {
    filter: Option<&'e SpannedExpr>,
    key: Option<&'e SpannedExpr>,
    item: &'e SpannedExpr,
}

/// Recognizes `accumulator + [item]` and `filter ? accumulator + [item] : accumulator`, which `map` and `filter`
/// expand to: appended in place they are linear, added they would copy the list for every element.
fn appended(comprehension: &ComprehensionData) -> Option<Appended<'_>> {
    let is_accumulator =
        |node: &SpannedExpr| matches!(&node.node, Expr::Ident(name) if *name == comprehension.accu_var);
    let starts_empty = match &comprehension.accu_init.node {
        Expr::List(items) => items.is_empty(),
        Expr::Map(entries) => entries.is_empty(),
        _ => false,
    };
    let runs_to_the_end = matches!(comprehension.loop_condition.node, Expr::Bool(true));
    if !starts_empty || !runs_to_the_end || !is_accumulator(&comprehension.result) {
        return None;
    }
    let (filter, append) = match &comprehension.loop_step.node {
        Expr::Ternary { cond, then_expr, else_expr } if is_accumulator(else_expr) => (Some(&**cond), &**then_expr),
        _ => (None, &*comprehension.loop_step),
    };
    let Expr::Binary { op: BinaryOp::Add, left, right } = &append.node else { return None };
    if !is_accumulator(left) {
        return None;
    }
    match &right.node {
        Expr::List(items) => match items.as_slice() {
            [item] if !item.optional => Some(Appended { filter, key: None, item: &item.expr }),
            _ => None,
        },
        Expr::Map(entries) => match entries.as_slice() {
            [entry] if !entry.optional => Some(Appended { filter, key: Some(&entry.key), item: &entry.value }),
            _ => None,
        },
        _ => None,
    }
}
