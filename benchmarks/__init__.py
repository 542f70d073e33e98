"""Benchmarks, side by side with the peers in one run: tasks, models and metrics as data.

`python -m benchmarks run --suite NAME` writes NAME.json, NAME.md, NAME.html and pictures; `--help` lists the suites.
"""
