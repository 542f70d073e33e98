"""Bad input, in one table: `wrong_values.py` has the wrong values of each kind and the words of a
refusal, `entries.py` the public calls with the kinds of their arguments, `calls.py` how such a call
is described.

`world.py` has the small data sets and models on which they are called. `tests/test_bad_input.py`
runs the table.
"""
