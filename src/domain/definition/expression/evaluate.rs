//! Walks a compiled expression within a budget.
//!
//! Errors are values to `&&`, `||` and the comprehensions built on them, as CEL has it: `false && error` is false. A
//! spent budget is not such an error; it ends the evaluation whatever stands around it.

use super::{
    Budget, Problem, Scope,
    compile::{Code, Collect, Fold, Program},
    function,
    path::Root,
    value,
};
use crate::domain::PAYLOAD_BYTES_MAX;
use cel_core::{BinaryOp, MapKey, Timestamp, Value, ValueMap};
use std::sync::Arc;

/// Evaluates the program.
pub(super) fn evaluate(program: &Program, scope: &Scope<'_>, budget: &mut Budget) -> Result<Value, Problem> {
    let mut evaluator =
        Evaluator { program, scope, budget, found: vec![None; program.paths.len()], locals: Vec::new() };
    evaluator.node(&program.code)
}

struct Evaluator<'e, 's> {
    program: &'e Program,
    scope: &'e Scope<'s>,
    budget: &'e mut Budget,
    /// What each path led to: a payload is searched once, however often a loop mentions it.
    found: Vec<Option<Result<Value, Problem>>>,
    /// An accumulator may hold an error.
    locals: Vec<Result<Value, Problem>>,
}

impl Evaluator<'_, '_> {
    fn node(&mut self, code: &Code) -> Result<Value, Problem> {
        self.budget.spend(1)?;
        match code {
            Code::Constant(value) => Ok(value.clone()),
            Code::Path(index) => self.path(*index),
            Code::HasPath(index) => self.has_path(*index),
            Code::Local(slot) => self.locals[*slot].clone(),
            Code::List(items) => {
                let items: Result<Vec<Value>, Problem> = items.iter().map(|item| self.node(item)).collect();
                Ok(Value::List(Arc::from(items?)))
            }
            Code::Map(entries) => {
                let mut map = ValueMap::new();
                for (key, item) in entries {
                    let key = self.key(key)?;
                    let item = self.node(item)?;
                    insert(&mut map, key, item)?;
                }
                Ok(Value::Map(Arc::new(map)))
            }
            Code::Not(operand) => match self.node(operand)? {
                Value::Bool(flag) => Ok(Value::Bool(!flag)),
                other => Err(no_overload("!", &[&other])),
            },
            Code::Negate(operand) => match self.node(operand)? {
                Value::Int(number) => number.checked_neg().map(Value::Int).ok_or_else(overflow),
                Value::Double(number) => Ok(Value::Double(-number)),
                other => Err(no_overload("-", &[&other])),
            },
            Code::And(operands) => self.logic(operands, false),
            Code::Or(operands) => self.logic(operands, true),
            Code::Choice(parts) => {
                let [condition, yes, no] = &**parts;
                match self.node(condition)? {
                    Value::Bool(true) => self.node(yes),
                    Value::Bool(false) => self.node(no),
                    other => Err(Problem::NotBoolean(value::kind(&other))),
                }
            }
            Code::Binary(operator, operands) => {
                let left = self.node(&operands[0])?;
                let right = self.node(&operands[1])?;
                self.binary(*operator, left, right)
            }
            Code::Field(of, name) => {
                let of = self.node(of)?;
                field(&of, name)
            }
            Code::Has(of, name) => {
                let of = absorb(self.node(of))?;
                Ok(Value::Bool(of.is_ok_and(|of| field(&of, name).is_ok())))
            }
            Code::Index(parts) => {
                let of = self.node(&parts[0])?;
                let index = self.node(&parts[1])?;
                element(&of, &index)
            }
            Code::Call(function, arguments) => {
                let arguments: Result<Vec<Value>, Problem> =
                    arguments.iter().map(|argument| self.node(argument)).collect();
                function.call(&arguments?, self.budget)
            }
            Code::Collect(collect) => self.collect(collect),
            Code::Fold(fold) => self.fold(fold),
            Code::Bind(parts) => {
                let bound = self.node(&parts[0])?;
                self.locals.push(Ok(bound));
                let result = self.node(&parts[1]);
                self.locals.pop();
                result
            }
        }
    }

    fn path(&mut self, index: usize) -> Result<Value, Problem> {
        if let Some(found) = &self.found[index] {
            return found.clone();
        }
        let path = &self.program.paths[index];
        let found = match path.root {
            // The one value in scope that JSON has no type for.
            Root::ExecutionStartTime if path.segments.is_empty() => Ok(instant(self.scope.execution.start_time)),
            Root::ScheduleNominalTime | Root::ScheduleStartTime
                if path.segments.is_empty()
                    && let Some(schedule) = self.scope.schedule =>
            {
                let is_nominal = path.root == Root::ScheduleNominalTime;
                Ok(instant(if is_nominal { schedule.nominal_time } else { schedule.start_time }))
            }
            Root::Input
            | Root::Output(_)
            | Root::Error(_)
            | Root::State(_)
            | Root::Signal
            | Root::Event
            | Root::Failure
            | Root::ItemValue
            | Root::ItemIndex
            | Root::ExecutionId
            | Root::ExecutionRun
            | Root::ExecutionStartTime
            | Root::ScheduleId
            | Root::ScheduleNominalTime
            | Root::ScheduleStartTime => path.find(self.scope).and_then(|text| value::read(&text, self.budget)),
        };
        self.found[index] = Some(found.clone());
        found
    }

    fn has_path(&mut self, index: usize) -> Result<Value, Problem> {
        match absorb(self.path(index))? {
            // `has(steps.x.error)` asks whether there is one; a field of a payload may well be null.
            Ok(Value::Null) => Ok(Value::Bool(!self.program.paths[index].segments.is_empty())),
            Ok(_) => Ok(Value::Bool(true)),
            Err(Problem::Missing { .. }) => Ok(Value::Bool(false)),
            Err(problem) => Err(problem),
        }
    }

    /// `&&` (`decides` is false) and `||` (true): one side that decides is enough, whatever the other is.
    fn logic(&mut self, operands: &[Code; 2], decides: bool) -> Result<Value, Problem> {
        let mut problem = None;
        for operand in operands {
            match absorb(self.node(operand))? {
                Ok(Value::Bool(flag)) if flag == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(other) => {
                    problem.get_or_insert(no_overload(if decides { "||" } else { "&&" }, &[&other]));
                }
                Err(error) => {
                    problem.get_or_insert(error);
                }
            }
        }
        problem.map_or(Ok(Value::Bool(!decides)), Err)
    }

    fn binary(&mut self, operator: BinaryOp, left: Value, right: Value) -> Result<Value, Problem> {
        // The common cases here, everything else by the library's own operators.
        let integers = |number: Option<i64>| number.map(Value::Int).ok_or_else(overflow);
        match (operator, &left, &right) {
            (BinaryOp::Eq | BinaryOp::Ne, _, _) => {
                function::weigh(&left, self.budget)?;
                function::weigh(&right, self.budget)?;
                Ok(Value::Bool((left == right) == (operator == BinaryOp::Eq)))
            }
            (BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge, _, _) => {
                let order = left.compare(&right).ok_or_else(|| no_overload(symbol(operator), &[&left, &right]))?;
                Ok(Value::Bool(match operator {
                    BinaryOp::Lt => order.is_lt(),
                    BinaryOp::Le => order.is_le(),
                    BinaryOp::Gt => order.is_gt(),
                    _ => order.is_ge(),
                }))
            }
            (BinaryOp::Add, Value::Int(a), Value::Int(b)) => integers(a.checked_add(*b)),
            (BinaryOp::Sub, Value::Int(a), Value::Int(b)) => integers(a.checked_sub(*b)),
            (BinaryOp::Mul, Value::Int(a), Value::Int(b)) => integers(a.checked_mul(*b)),
            (BinaryOp::Add, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
            (BinaryOp::Sub, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
            (BinaryOp::Mul, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
            (BinaryOp::Add, Value::String(a), Value::String(b)) if a.len() + b.len() > PAYLOAD_BYTES_MAX => {
                Err(Problem::TooLarge)
            }
            _ => {
                function::weigh(&left, self.budget)?;
                function::weigh(&right, self.budget)?;
                function::operator(operator, left, right)
            }
        }
    }

    fn key(&mut self, code: &Code) -> Result<MapKey, Problem> {
        let key = self.node(code)?;
        MapKey::from_value(&key).ok_or_else(|| Problem::Failed(format!("{} cannot be a key", value::kind(&key))))
    }

    fn collect(&mut self, collect: &Collect) -> Result<Value, Problem> {
        let elements = elements(self.node(&collect.range)?, collect.keyed)?;
        let base = self.locals.len();
        let mut items = Vec::new();
        let mut map = ValueMap::new();
        for (key, element) in elements {
            self.locals.truncate(base);
            self.bind(collect.keyed, key, element);
            if let Some(filter) = &collect.filter {
                match self.node(filter)? {
                    Value::Bool(true) => {}
                    Value::Bool(false) => continue,
                    other => return Err(Problem::NotBoolean(value::kind(&other))),
                }
            }
            let key = collect.key.as_ref().map(|key| self.key(key)).transpose()?;
            let item = self.node(&collect.item)?;
            match key {
                Some(key) => insert(&mut map, key, item)?,
                None => items.push(item),
            }
        }
        self.locals.truncate(base);
        Ok(if collect.key.is_some() { Value::Map(Arc::new(map)) } else { Value::List(Arc::from(items)) })
    }

    fn fold(&mut self, fold: &Fold) -> Result<Value, Problem> {
        let elements = elements(self.node(&fold.range)?, fold.keyed)?;
        let start = self.node(&fold.start)?;
        let base = self.locals.len();
        self.locals.push(Ok(start));
        for (key, element) in elements {
            self.locals.truncate(base + 1);
            self.bind(fold.keyed, key, element);
            // An error so far does not end the search for an element that decides.
            if let Ok(Value::Bool(false)) = absorb(self.node(&fold.condition))? {
                break;
            }
            let step = absorb(self.node(&fold.step))?;
            self.locals[base] = step;
        }
        self.locals.truncate(base + 1);
        let result = self.node(&fold.result);
        self.locals.truncate(base);
        result
    }

    fn bind(&mut self, keyed: bool, key: Value, element: Value) {
        if keyed {
            self.locals.push(Ok(key));
        }
        self.locals.push(Ok(element));
    }
}

/// Takes an error as a value, unless it ends the evaluation.
fn absorb(result: Result<Value, Problem>) -> Result<Result<Value, Problem>, Problem> {
    match result {
        Err(Problem::TooMuchWork) => Err(Problem::TooMuchWork),
        other => Ok(other),
    }
}

/// The elements of a list with their indices, or of a map with their keys. A loop with one name sees a map's keys.
fn elements(range: Value, keyed: bool) -> Result<Vec<(Value, Value)>, Problem> {
    match range {
        Value::List(items) => Ok((0..).map(Value::Int).zip(items.iter().cloned()).collect()),
        Value::Map(map) if keyed => Ok(map.iter().map(|(key, item)| (key.to_value(), item.clone())).collect()),
        Value::Map(map) => Ok(map.keys().map(|key| (Value::Null, key.to_value())).collect()),
        other => Err(Problem::Failed(format!("{} has no elements", value::kind(&other)))),
    }
}

fn insert(map: &mut ValueMap, key: MapKey, item: Value) -> Result<(), Problem> {
    if map.contains_key_with_numeric_coercion(&key) {
        return Err(Problem::Failed("a key stands twice in a map".to_owned()));
    }
    map.insert(key, item);
    Ok(())
}

fn field(of: &Value, name: &str) -> Result<Value, Problem> {
    let missing = |reason: String| Problem::Missing { path: name.to_owned(), reason };
    match of {
        Value::Map(map) => {
            map.get(&MapKey::from(name)).cloned().ok_or_else(|| missing(format!("the object has no field `{name}`")))
        }
        other => Err(missing(format!("{} has no fields", value::kind(other)))),
    }
}

fn element(of: &Value, index: &Value) -> Result<Value, Problem> {
    let index_text = || {
        let mut text = String::new();
        match value::write(&mut text, index) {
            Ok(()) => text,
            Err(_) => value::kind(index),
        }
    };
    let missing = |reason: String| Problem::Missing { path: format!("[{}]", index_text()), reason };
    match (of, index) {
        (Value::List(items), Value::Int(_) | Value::UInt(_)) => {
            let at = match index {
                Value::Int(at) => usize::try_from(*at).ok(),
                Value::UInt(at) => usize::try_from(*at).ok(),
                _ => None,
            };
            at.and_then(|at| items.get(at))
                .cloned()
                .ok_or_else(|| missing(format!("the list has {} elements", items.len())))
        }
        (Value::Map(map), _) => match MapKey::from_value(index) {
            Some(key) => map
                .get_with_numeric_coercion(&key)
                .cloned()
                .ok_or_else(|| missing(format!("the object has no field {}", index_text()))),
            None => Err(Problem::Failed(format!("{} cannot be a key", value::kind(index)))),
        },
        (other, _) => Err(missing(format!("{} has no element of this kind", value::kind(other)))),
    }
}

fn instant(time: crate::domain::Timestamp) -> Value {
    let micros = time.as_micros();
    let nanos = i32::try_from(micros.rem_euclid(1_000_000) * 1_000).expect("below 10^9");
    Value::Timestamp(Timestamp::new(micros.div_euclid(1_000_000), nanos))
}

fn overflow() -> Problem {
    Problem::Failed("the result does not fit 64 bits".to_owned())
}

/// The operator as it is written.
pub(super) fn symbol(operator: BinaryOp) -> &'static str {
    match operator {
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::Mod => "%",
        BinaryOp::Eq => "==",
        BinaryOp::Ne => "!=",
        BinaryOp::Lt => "<",
        BinaryOp::Le => "<=",
        BinaryOp::Gt => ">",
        BinaryOp::Ge => ">=",
        BinaryOp::In => "in",
        BinaryOp::And => "&&",
        BinaryOp::Or => "||",
    }
}

/// No operator or function of this name takes such arguments.
pub(super) fn no_overload(name: &str, arguments: &[&Value]) -> Problem {
    let kinds: Vec<String> = arguments.iter().map(|argument| value::kind(argument)).collect();
    let mixed = kinds.iter().any(|kind| kind == "double") && kinds.iter().any(|kind| kind == "int" || kind == "uint");
    let hint = if mixed { "; convert one of them with `double(…)` or `int(…)`" } else { "" };
    Problem::Failed(format!("`{name}` does not take {}{hint}", kinds.join(" and ")))
}
