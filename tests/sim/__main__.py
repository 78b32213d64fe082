"""``python -m sim``: see ``runner``."""

from sim.runner import main

if __name__ == "__main__":
    raise SystemExit(main())
