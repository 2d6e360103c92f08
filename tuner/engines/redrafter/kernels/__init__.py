"""Kernels for CUDA, in Triton where it can say them, else in CUDA C++.

Each is held to plain torch by a test; those in Triton in its interpreter too.
"""
