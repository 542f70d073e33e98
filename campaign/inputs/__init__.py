"""Bad inputs: `wrong_values.py` has what is wrong with a value of each kind, `entries.py` the
public calls.

`world.py` has the small data sets and models on which they are called.
"""
