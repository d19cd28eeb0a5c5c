"""Benchmarks of a checkout, beside public peers; no part of the package."""
