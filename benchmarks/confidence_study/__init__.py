"""Confidence of recommendations: models, methods, measures and report."""
