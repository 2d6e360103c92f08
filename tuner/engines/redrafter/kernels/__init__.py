"""Kernels in Triton, for CUDA. Each is held to plain torch by a test, in the interpreter too."""
