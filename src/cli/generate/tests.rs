//! What is generated for the example shop, line by line, and what is refused.

use super::{Declared, go, python, typescript};
use crate::domain::definition::Definition;

fn declared(schemas: &str) -> Declared {
    let text = format!("name: shop\nversion: 1.0.0\n{schemas}\nsteps:\n  - {{id: wait, sleep: {{for: 1s}}}}\n");
    let (definition, _) = Definition::parse("shop.yaml", &text).expect("the definition is valid");
    Declared::of(&[definition]).expect("nothing contradicts itself")
}

const CHARGE: &str = include_str!("golden/charge.yaml");

#[test]
fn go_gets_structs_constants_and_a_function_for_each_contract() {
    let code = go::write(&declared(CHARGE), "shop");
    assert_eq!(code, include_str!("golden/charge.go.txt"));
}

#[test]
fn python_gets_typed_dicts_and_a_decorator_for_each_contract() {
    let code = python::write(&declared(CHARGE));
    assert_eq!(code, include_str!("golden/charge.py.txt"));
}

#[test]
fn typescript_gets_interfaces_and_a_function_for_each_contract() {
    let code = typescript::write(&declared(CHARGE));
    assert_eq!(code, include_str!("golden/charge.ts.txt"));
}

#[test]
fn what_refers_to_itself_has_a_name() {
    let code = typescript::write(&declared(
        r##"tasks: {tree@1: {input: {$defs: {node: {type: object, properties: {kids: {type: array, items: {$ref: "#/$defs/node"}}}}}, $ref: "#/$defs/node"}}}"##,
    ));
    assert!(code.contains("export type TreeV1Input = TreeV1Node;"), "{code}");
    assert!(code.contains("kids?: TreeV1Node[] | undefined;"), "{code}");
}

#[test]
fn alternatives_are_unions_and_null_makes_a_value_optional() {
    let code = python::write(&declared(
        r#"tasks: {any@1: {input: {oneOf: [{type: string}, {type: "null"}, {type: integer}]}, output: {enum: [a, null]}}}"#,
    ));
    assert!(code.contains("AnyV1Input = str | int | None"), "{code}");
    assert!(code.contains("AnyV1OutputValue = Literal[\"a\"]"), "{code}");
    assert!(code.contains("AnyV1Output = AnyV1OutputValue | None"), "{code}");
}

#[test]
fn callers_get_types_of_inputs_outputs_and_signals() {
    let code = typescript::write(&declared(
        "input: {type: object, properties: {n: {type: integer}}}\noutput: {type: string}\nsignals: {paid: {type: boolean}}",
    ));
    assert!(code.contains("export interface ShopInput {\n  n?: number | undefined;\n}"), "{code}");
    assert!(code.contains("export type ShopOutput = string;"), "{code}");
    assert!(code.contains("export type ShopPaidSignal = boolean;"), "{code}");
    assert!(!code.contains("import"), "{code}");
}

#[test]
fn one_contract_with_two_meanings_is_refused() {
    let parse = |name: &str, kind: &str| {
        let text = format!(
            "name: {name}\nversion: 1.0.0\ntasks: {{t@1: {{input: {{type: {kind}}}}}}}\nsteps: [{{id: a, sleep: {{for: 1s}}}}]\n"
        );
        Definition::parse("x.yaml", &text).expect("the definition is valid").0
    };
    assert!(Declared::of(&[parse("a", "string"), parse("b", "string")]).is_ok());
    let error = Declared::of(&[parse("a", "string"), parse("b", "integer")]).unwrap_err();
    assert!(format!("{error:?}").contains("two definitions declare t@1 with different schemas"), "{error:?}");
}
