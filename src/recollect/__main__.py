"""`python -m recollect` is `recollect`."""

from recollect.cli.main import main

if __name__ == "__main__":
    main()
