"""Benchmarks: this package beside its peers, measured in one run on one machine.

`python -m benchmarks run --suite NAME` runs a suite and writes its report;
`python -m benchmarks --help` lists the suites.

- `harness/` runs suites: command line, journal, report, clocks, metrics and data;
- `libraries/` trains models of this package and of its peers in the same way;
- `suites/` has a package per suite, each of which says what it measures.

Read `README.md` first, then `harness/runner.py`, then one of the suites.
"""
