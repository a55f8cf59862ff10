"""`python -m lqd` is `lqd`."""

from lqd.cli import main

if __name__ == "__main__":
    main()
