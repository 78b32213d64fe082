"""`python -m tidemill.cli` is `tidemill`, for where the script is not on the path."""

from tidemill.cli import main

if __name__ == "__main__":
    main()
