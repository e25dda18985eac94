-- Silence after which a session is lost, as its worker was told when it was last connected, so that every node judges it by
-- the same, whatever its own setting is. NULL in rows of versions that did not write it: then by the node's own.
ALTER TABLE sessions ADD COLUMN timeout INTEGER;
