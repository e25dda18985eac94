"""Makes the example's modules importable by its tests, as they are when worker.py runs, and the SDK's fake server."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "sdk/python/tests")]
