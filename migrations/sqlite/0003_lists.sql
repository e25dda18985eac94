-- Executions of a workflow in a state: found at once, however few of many they are. A workflow's in all states have an index
-- of their own, since this one would have to be walked once for each state.
CREATE INDEX executions_workflow_state ON executions (namespace, workflow, state, start_time, key);
