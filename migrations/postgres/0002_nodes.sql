-- `seen` is the database's clock when the row was last written: a row that has not been seen for ten seconds is a dead
-- node's. Nodes' own clocks (`now`) may be minutes apart, so they cannot tell.
ALTER TABLE nodes ADD COLUMN seen BIGINT NOT NULL DEFAULT 0;

-- A live node has a slot of its own, 1 or higher, which names its rows of `counters`. A dead node's is taken from it, so
-- that the number of those rows follows the number of nodes and not of starts.
ALTER TABLE nodes ALTER COLUMN slot DROP NOT NULL;
ALTER TABLE nodes ADD CONSTRAINT nodes_slot UNIQUE (slot);
