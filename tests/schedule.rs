//! Schedules against an implementation that shares nothing with ours: Python's zoneinfo and cronsim say when 10,000 random
//! expressions fire, and what clocks show (`scripts/schedule_expectations.py`, which also lists what differs on purpose).
//!
//! `make test` installs what it needs into `.venv`. `SEED` chooses other cases, `CASES` another number of them.

use orbit::domain::{
    Timestamp,
    schedule::{Draft, Missing, Repeated, Spec},
};
use serde_json::Value;
use std::{env, path::Path, process::Command};

fn setting(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// One line of the script.
struct Case(Value);

impl Case {
    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    fn instant(&self, name: &str) -> Timestamp {
        Timestamp::from_micros(self.0[name].as_i64().expect("the script writes seconds") * 1_000_000)
    }

    fn slots(&self) -> Vec<i64> {
        self.0["slots"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect()
    }

    fn spec(&self) -> Spec {
        let missing = match self.text("missing") {
            "skip" => Some(Missing::Skip),
            "shift" => Some(Missing::Shift),
            _ => None,
        };
        let repeated = match self.text("repeated") {
            "first" => Some(Repeated::First),
            "last" => Some(Repeated::Last),
            "both" => Some(Repeated::Both),
            _ => None,
        };
        let (crons, timezone) = (vec![self.text("cron").to_owned()], self.text("zone").to_owned());
        Spec::check(&Draft { crons, timezone, missing, repeated, ..Draft::default() })
            .unwrap_or_else(|faults| panic!("{}: {faults:?}", self.0))
    }
}

/// Runs the script.
fn expectations() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = setting("ORBIT_TEST_PYTHON", root.join(".venv/bin/python").to_str().expect("the path is text"));
    let output = Command::new(&python)
        .arg(root.join("scripts/schedule_expectations.py"))
        .args([setting("SEED", "1"), setting("CASES", "10000")])
        .output()
        .unwrap_or_else(|error| panic!("{python}: {error}; `make .venv/stamp` installs it"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    text.lines().map(|line| Case(serde_json::from_str(line).expect("each line is JSON"))).collect()
}

/// What differs in one case, if anything does.
fn difference(case: &Case) -> Option<String> {
    let slots_after = |after: Timestamp| {
        let spec = case.spec();
        std::iter::successors(spec.next(after), move |slot| spec.next(*slot)).map(|slot| slot.as_micros() / 1_000_000)
    };
    let expected = case.slots();
    match case.text("kind") {
        "cron" => {
            let found: Vec<i64> = slots_after(case.instant("after")).take(expected.len()).collect();
            (found != expected).then(|| format!("{found:?}"))
        }
        "policy" => {
            let before = Timestamp::from_micros(case.instant("from").as_micros() - 1);
            let end = case.instant("to").as_micros() / 1_000_000;
            let found: Vec<i64> = slots_after(before).take_while(|slot| *slot < end).collect();
            (found != expected).then(|| format!("{found:?}"))
        }
        "local" => {
            let spec = Spec::check(&Draft {
                crons: vec!["@daily".to_owned()],
                timezone: case.text("zone").to_owned(),
                ..Draft::default()
            });
            let local = spec.map(|spec| spec.local(case.instant("at")));
            (local.as_deref() != Ok(case.text("local"))).then(|| format!("{local:?}"))
        }
        kind => Some(format!("`{kind}` is no kind of case")),
    }
}

#[test]
fn random_schedules_fire_when_zoneinfo_and_cronsim_say() {
    let cases = expectations();
    let differences: Vec<String> =
        cases.iter().filter_map(|case| Some(format!("{}: {}", case.0, difference(case)?))).collect();
    assert!(cases.len() > 1_000 || env::var("CASES").is_ok(), "there are {} cases", cases.len());
    assert!(
        differences.is_empty(),
        "{} of {} cases differ:\n{}",
        differences.len(),
        cases.len(),
        differences[..differences.len().min(20)].join("\n")
    );
}
