"""The one entry: `python -m benchmarks run --suite NAME`; `--help` lists suites, or with a suite its options."""

from __future__ import annotations

import sys
import webbrowser

from .command_line import execute

page = execute(sys.argv[1:])
print(f"wrote {page}", flush=True)
if "--open" in sys.argv[1:]:
    webbrowser.open(page.resolve().as_uri())
