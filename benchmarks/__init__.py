"""Benchmarks: speed, quality for time, memory and convergence, side by side with the peers in one run.

`python -m benchmarks.run {speed,quality,memory,convergence,tiny}`; each writes JSON, Markdown and pictures.
"""
