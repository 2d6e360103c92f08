"""`python -m tuner`."""

from tuner.cli import app

app(prog_name="tuner")
