"""What the speed benchmarks share: turns, gradients and memory."""
