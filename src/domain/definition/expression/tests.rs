//! Expressions and templates against scopes.
