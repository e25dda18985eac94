"""Whoever hovers over a name, or asks for `help`, finds what it means."""

import ast
import inspect

import orbit


def fields_without_docs(kind: type) -> list[str]:
    """The fields of a dataclass behind which no docstring stands."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    missing = []
    for statement, after in zip(definition.body, [*definition.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            missing += [] if documented else [f"{kind.__name__}.{statement.target.id}"]
    return missing


def test_every_exported_name_is_described() -> None:
    missing = []
    for name in orbit.__all__:
        value = getattr(orbit, name)
        if not inspect.isclass(value) or not value.__module__.startswith("orbit."):
            continue
        missing += [] if value.__doc__ else [name]
        if hasattr(value, "__dataclass_fields__"):
            missing += fields_without_docs(value)
        for member, function in inspect.getmembers(value, inspect.isfunction):
            if not member.startswith("_") and not function.__doc__:
                missing.append(f"{name}.{member}")
    assert missing == []
