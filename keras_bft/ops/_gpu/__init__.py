"""Fused GPU kernels of `softmax_moments`, in Pallas for JAX and in Triton."""
