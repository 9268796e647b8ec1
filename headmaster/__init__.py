"""Grade nbgrader notebooks in two processes: fast, fair, and out of the student's reach."""

__version__ = "0.1.0"
