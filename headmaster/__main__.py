"""`python -m headmaster`."""

from headmaster.cli import main

if __name__ == "__main__":
    main(prog_name="headmaster")
