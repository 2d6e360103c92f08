"""Our ReDrafter engine in PyTorch: CPU and CUDA from one source."""

import os

# NOTE: torch's OpenMP threads spin at every barrier for as long as a time slice. On a host that is
# doing anything else a step then takes 20 times as long (measured on 2 cores: over 1 s instead of
# 0.05 s). A short spin costs nothing measurable when the host is quiet. Read when torch loads.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
