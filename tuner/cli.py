"""The command line: `tuner COMMAND --help` says what each one does."""

from __future__ import annotations

import typer

from tuner.commands.doctor import doctor
from tuner.commands.drafter import train_drafter
from tuner.commands.eval_drafter import eval_drafter
from tuner.commands.export_drafter import export_drafter
from tuner.commands.import_profile import import_profile
from tuner.commands.run import run
from tuner.commands.sweep import best, export, resume, status, stop, sweep

app = typer.Typer(
    name="tuner",
    help="Tune ReDrafter: find the beam width, draft length, batch size and precision to deploy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)

COMMANDS = (doctor, run, sweep, status, stop, resume, best, export, train_drafter, eval_drafter)
for command in COMMANDS:
    app.command()(command)
app.command()(export_drafter)
app.command(name="import")(import_profile)
