"""Fast CPU kernels. Each has a plain PyTorch definition elsewhere; tests compare the two."""
