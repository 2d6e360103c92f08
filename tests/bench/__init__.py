import tuner.engines.redrafter  # noqa: F401 - before torch: it says how its threads wait
