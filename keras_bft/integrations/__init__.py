"""Use of this library inside others; each module needs an extra of its own."""
