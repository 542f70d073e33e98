"""What the package does on real data: `python -m demo.photograph`."""
