"""Plays the scenarios of `tests/sdk/scenarios` against the drivers of all SDKs and judges what they do."""

import os

# The C core tells of every connection that the scenarios break. It reads this when it is loaded.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
