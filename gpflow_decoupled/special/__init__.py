"""Special functions that TensorFlow, TFP and SciPy lack, or compute with an error that the
docstring tells.

`normal` has Phi, `owens_t` T(h, a), `hyperbolic` x / sinh x, `bessel` log K, `trigamma` and
`polygamma` psi'; `hermite` interpolates in tables, `gradients` attaches derivatives to values.
"""

# | function | what it computes | file |
# |---|---|---|
# | `normal_cdf`, `log_normal_cdf`, `inverse_mills` | Phi, log Phi, phi / Phi | `normal.py` |
# | `owens_t` | Owen's T(h, a) | `owens_t.py` |
# | `x_over_sinh`, `x_over_sinh_and_rest` | k = x / sinh x; k and (1 - k) / x^2 | `hyperbolic.py` |
# | `log_bessel_k` | log K_order(z), differentiable in the order | `bessel.py` |
# | `trigamma`, `trigamma_excess` | psi'(x), x psi'(x) - 1 | `trigamma.py` |
# | `trigamma_defect` | x - 1 / psi'(x) | `trigamma.py` |
# | `gamma_shape` | the x with log x - psi(x) = gap | `trigamma.py` |
# | `polygammas` | psi' and psi'' of NumPy arrays | `polygamma.py` |
# | `hermite_lookup` | interpolation in tables of values and derivatives | `hermite.py` |
# | `with_slopes` | a value with given derivatives | `gradients.py` |

__all__: list[str] = []
