"""Our ReDrafter engine in PyTorch: CPU and CUDA from one source."""
