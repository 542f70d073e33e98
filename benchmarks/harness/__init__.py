"""What every suite shares: it runs them, measures, and reports.

- `command_line` finds a suite by its name; `runner` works on its pieces, with a `journal` that an
  interrupted run goes on from, and writes its `report` with `pictures`;
- `machine` has the clock; `measuring` times calls and reads peak memory; `processes` starts work
  elsewhere;
- `records` copies a model while it trains, so that it can be evaluated afterwards by the `metrics`;
  `data` has the data sets.

Read `runner` first. This package imports nothing by itself, so that a fresh process can use one
module alone."""

__all__: list[str] = []
