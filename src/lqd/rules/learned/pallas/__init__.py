"""The networks as fused kernels for NVIDIA GPUs."""
