"""Weights of 8 and 4 bits: how they are made, read from checkpoints, and multiplied.

load.py         a base model from its folder to its device in any precision
quantize.py     the steps of it, in order; also any module's linear layers by themselves
support.py      which precision runs on which device, and why not
layer.py        a linear layer of codes and scales; fp8.py, int8.py, int4.py are its kinds
calibrate.py    what the base model's linear layers read while it reads a workload's prompts
fold.py         channels that may be rescaled without changing the model's function
smooth.py       by how much, for SmoothQuant and for AWQ
scale_cache.py  the scales found, on disk
kernels.py      the fast product of each kind; humming.py those of humming-kernels
formats/        checkpoints that others quantized
"""
