"""Entry point: `python -m benchmarks run --suite NAME`. `--help` lists the suites, or the options
of a named one.
"""

from __future__ import annotations

import sys
import webbrowser

from .harness.command_line import execute

page = execute(sys.argv[1:])
print(f"wrote {page}", flush=True)
if "--open" in sys.argv[1:]:
    webbrowser.open(page.resolve().as_uri())
