//! Fan-out, children, compensation, handlers, queries and the rest: from text to model.

use super::{super::fault::code, *};

/// A bit of everything.
const WHOLE: &str = include_str!("whole.yaml");

#[test]
fn the_whole_language_is_read() {
    let whole = parse(WHOLE);
    let ids: Vec<&str> = whole.steps.iter().map(|step| &*step.id).collect();
    assert_eq!(
        ids,
        [
            "pay",
            "ship",
            "book",
            "invoice",
            "look",
            "tell",
            "up",
            "down",
            "again",
            "compensate:pay",
            "compensate:ship",
            "compensate:book",
            "failure:why",
            "failure:notify",
            "cancel:bye",
            "timeout:late",
            "on_event:log",
            "on_event:pass"
        ]
    );
    assert_eq!(whole.main().len(), 9);
    let step = |id: &str| whole.step(whole.find(id).unwrap());
    let needs = |id: &str| step(id).needs.iter().map(|need| &*whole.step(*need).id).collect::<Vec<_>>();
    assert_eq!(needs("failure:notify"), ["failure:why"], "main steps are seen, not needed");
    assert!(needs("compensate:ship").is_empty() && needs("down").is_empty() && needs("on_event:log").is_empty());
    assert_eq!(whole.handlers.failure, [whole.find("failure:why").unwrap(), whole.find("failure:notify").unwrap()]);
    assert_eq!(whole.handlers.on_event.len(), 2);
    assert_eq!(step("on_event:pass").short_id(), "pass");

    let ship = step("ship").for_each.as_ref().unwrap();
    assert_eq!((&*ship.variable, ship.parallel_max), ("parcel", Some(10)));
    assert_eq!(step("ship").compensation, whole.find("compensate:ship"));
    let of = |id: &str| match step(id).role {
        Role::Compensation { of, unknown } => (of, unknown),
        Role::Main | Role::Handler(_) | Role::OnEvent { .. } => panic!("{id} undoes nothing"),
    };
    assert_eq!(of("compensate:ship"), (whole.find("ship").unwrap(), Unknown::Skip));
    assert_eq!(of("compensate:pay"), (whole.find("pay").unwrap(), Unknown::Compensate));
    assert!(step("invoice").irreversible && !step("ship").irreversible);
    assert_eq!(step("timeout:late").role, Role::Handler(Winding::Timeout));
    let Role::OnEvent { signal, predicate: Some(_) } = &step("on_event:log").role else { panic!("log takes a signal") };
    assert_eq!(&**signal, "note");

    let Action::Signal(down) = &step("down").action else { panic!("down is a signal") };
    assert_eq!(down.to, SignalTarget::Child(whole.find("invoice").unwrap()));
    let contracts = whole.contracts();
    assert_eq!(
        contracts.iter().map(|name| &**name).collect::<Vec<_>>(),
        ["mail.send@1", "notes.log@1", "pay@1", "recall@1", "send@2"]
    );
}

#[test]
fn an_http_step_is_a_task_whose_input_is_the_request() {
    let whole = parse(WHOLE);
    let request = |id: &str| {
        let task = whole.step(whole.find(id).unwrap()).action.as_task().unwrap();
        assert_eq!((&*task.contract, &*task.queue), (HTTP_CONTRACT, HTTP_QUEUE));
        (task.input.as_ref().unwrap().source().to_json(), task.timeout)
    };
    let (default, long) = (Some(Duration::from_secs(30)), Some(Duration::from_secs(2)));
    let delete = r#"{"method":"DELETE","url":"https://x.example/${ item.value }"}"#;
    let post = r#"{"method":"POST","url":"https://x.example/${ item.value }","body":{"a":1}}"#;
    assert_eq!(request("look"), (r#"{"method":"GET","url":"https://x.example/"}"#.to_owned(), long));
    assert_eq!(request("book"), (post.to_owned(), default));
    assert_eq!(request("compensate:book"), (delete.to_owned(), default));
}

#[test]
fn the_whole_language_survives_its_json_form() {
    let whole = parse(WHOLE);
    let json = whole.to_json();
    assert_eq!(parse(&json), whole);
    assert_eq!(parse(&json).to_json(), json);
    assert_eq!(Definition::parse_stored(&json).unwrap(), whole);
}

#[test]
fn children_know_their_place_and_keep_their_pins() {
    let whole = parse(WHOLE);
    let hash = whole.hash;
    let found: Vec<(String, u32, u32)> = whole
        .children()
        .map(|(_, child)| {
            (format!("{} {}@{}", child.place.path, child.workflow, child.range), child.place.line, child.place.column)
        })
        .collect();
    assert_eq!(
        found,
        [
            ("steps[3].workflow invoice@^1.2".to_owned(), 20, 29),
            ("steps[0].compensate.workflow refund@*".to_owned(), 8, 64),
            ("handlers.cancel[0].workflow bye@1.0.0".to_owned(), 30, 32),
        ]
    );
    let pinned = whole.with_pins(|child| {
        (&*child.workflow != "bye").then(|| Pin { version: semver::Version::new(1, 2, 3), hash: [0xAB; 32] })
    });
    assert_eq!(pinned.hash, hash);
    let json = pinned.to_json();
    let stored = Definition::parse_stored(&json).unwrap();
    assert_eq!(stored, pinned);
    let pins = stored.children().filter(|(_, child)| child.pin.is_some()).count();
    assert_eq!((pins, stored.hash), (2, hash));
    let faults = faults(&json);
    let found: Vec<(&str, &str)> = faults.iter().map(|fault| (fault.code, &*fault.path)).collect();
    assert_eq!(
        found,
        [(code::FIELD_NOT_APPLICABLE, "steps[0].compensate.pin"), (code::FIELD_NOT_APPLICABLE, "steps[3].pin"),]
    );
}
