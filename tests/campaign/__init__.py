"""The reliability campaign: thousands of things that users do, tried at random, and what must hold
whatever they do.

`python -m tests.campaign` runs it. `trials` has one module for each kind of attempt, `problems.py`
and `ingredients.py` the random models and data, `evidence.py` and `checks.py` what must hold,
`runner.py` spreads the cases over processes and writes the table. Every case is a function of its
part, the seed and its number alone, so that one can be run again: `python -m tests.campaign --part
problems --case 137`. The cases are drawn by NumPy's generators and not by Hypothesis, which does
not fix what case 137 is; the tests of the campaign use Hypothesis where one function is tried with
many small arguments. What the tests hold in full is not tried here: wrong arguments
(`tests/test_bad_input.py`), copies, lost workers, damaged files."""
