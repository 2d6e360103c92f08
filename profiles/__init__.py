"""What was measured: records, run store, telemetry, statistics.

The lowest floor of the house: imports neither torch, optuna nor streamlit, so that a run opens
on a machine with no GPU and none of the engines.
"""
