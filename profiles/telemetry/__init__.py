"""Live counters of GPUs, host and the watched process, sampled by a process of their own.

    from profiles.telemetry.sampler import Sampler
    from profiles.telemetry.parts import read, read_reasons
    from profiles.telemetry.energy import energy_between

Nothing is imported here: the sampler process passes through this file and must stay light.
"""
