"""What helps to test handlers and callers.

- `run_handler`: one handler, as if a worker had got a task for it.
- `Fake`: a server in this process, for callers.
- `Server`: the real binary on a free port with an empty database; with pytest the fixture `orbit_server`.
"""

from orbit.testing.fake import Fake
from orbit.testing.run import Recorder, run_handler
from orbit.testing.server import Server, ServerError, find_binary

__all__ = ["Fake", "Recorder", "Server", "ServerError", "find_binary", "run_handler"]
