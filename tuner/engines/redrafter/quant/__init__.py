"""Weights of 8 and 4 bits: how they are made, read from checkpoints, and multiplied.

layer.py       a linear layer of codes and scales; fp8.py, int8.py, int4.py are its kinds
support.py     which precision runs on which device, and why not
calibrate.py   what the base model's linear layers read while it reads a workload's prompts
fold.py        channels that may be rescaled without changing the model's function
smooth.py      by how much, for SmoothQuant and for AWQ
kernels.py     the fast product of each kind on each device
formats/       checkpoints that others quantized
quantize.py    all of it, in order
"""
