"""Makes the example's modules importable by its tests, as they are when worker.py runs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
