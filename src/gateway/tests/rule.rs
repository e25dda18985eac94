//! What fails the build: the rules that the gateway cannot serve.

#[path = "../../../build/rule.rs"]
mod build;

use build::Rule;

/// Reads a rule for a request with the text `id` and the number `page_size`.
fn parse(method: &str, path: &str, body: &str) -> Result<Rule, String> {
    Rule::parse(method, path, body, |field| match field {
        "id" => Some(true),
        "page_size" => Some(false),
        _ => None,
    })
}

#[test]
fn a_bad_annotation_is_refused_with_its_reason() {
    for (method, path, body, why) in [
        ("GET", "v1/things", "", "must begin with /"),
        ("GET", "/v1//things", "", "\"\" is neither a word nor a variable"),
        ("GET", "/v1/things/{uid}", "", "the request has no field uid"),
        ("GET", "/v1/things/{page_size}", "", "the field page_size is not one string"),
        ("GET", "/v1/things/{id=things/*}", "", "is neither a word nor a variable"),
        ("GET", "/v1/things/{id=*}", "", "{id=*} is not the name of one field"),
        ("GET", "/v1/things/{id}x", "", "is neither a word nor a variable"),
        ("GET", "/v1/things/**", "", "is neither a word nor a variable"),
        ("GET", "/v1/things:", "", "\"\" is no verb"),
        ("GET", "/v1/things", "*", "takes no body"),
        ("POST", "/v1/things", "", "the body must be \"*\""),
        ("POST", "/v1/things", "thing", "the body must be \"*\""),
        ("HEAD", "/v1/things", "", "not a method of the gateway"),
    ] {
        let refused = parse(method, path, body).unwrap_err();
        assert!(refused.contains(why), "{method} {path}: {refused}");
    }
}

#[test]
fn rules_contradict_each_other_when_one_request_fits_both() {
    let get = |path| parse("GET", path, "").unwrap();
    assert!(get("/v1/things/{id}").contradicts(&get("/v1/things/{id}")));
    assert!(!get("/v1/things/{id}").contradicts(&get("/v1/things/all")));
    assert!(!get("/v1/things/{id}").contradicts(&get("/v1/things/{id}:wait")));
    assert!(!get("/v1/things/{id}").contradicts(&get("/v1/things/{id}/parts")));
    assert!(!get("/v1/things").contradicts(&parse("POST", "/v1/things", "*").unwrap()));
}
