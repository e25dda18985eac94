//! What SQLite alone promises: durability over a restart, one server, refusals in plain words, a short log.
