"""Speed, scale and precision, each measured beside a peer in the same run: `python -m benchmarks [NAME ...]`."""

NAMES = ("figure", "dense", "mixing", "sampling", "scale", "clients", "precision", "startup", "neural")
