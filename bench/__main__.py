"""`python -m bench` and `python bench` do what `python bench/run.py` does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from run import main

sys.exit(main())
