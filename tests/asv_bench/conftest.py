"""Makes the scripts of ``asv_bench/`` importable, as they are for each other."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "asv_bench"))
