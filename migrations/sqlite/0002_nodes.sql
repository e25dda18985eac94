-- `seen` is the machine's clock when the row was last written, beside the node's own time (`now`), which never goes back
-- and may be ahead of it.
ALTER TABLE nodes ADD COLUMN seen INTEGER NOT NULL DEFAULT 0;
