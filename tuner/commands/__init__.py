"""The command line, one command a file. Nothing heavy is imported until a command runs."""
