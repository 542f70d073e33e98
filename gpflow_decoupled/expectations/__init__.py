"""Expectations of a function of one Gaussian, of a sum of independent variables, or of one Gaussian
per class.

| integral | file | error | cost per observation |
|---|---|---|---|
| E log(1 + e^f), f Gaussian, and its derivatives | `logit_integrals` | 1e-12 | 40 or 112 nodes |
| the same by R quadratic pieces, the best or convex | `piecewise` | above by at most 1.4e-4 or 3.1e-4 nats at R = 20 | R |
| E g(f), f Gaussian, for a g that bends near one place | `peaked` | 1e-9 | 128 nodes |
| E g(y), y = alpha^T v + beta, v independent: any route | `site_integrals`, `fourier` | as below | as below |
| - by a frequency sum, for g with a known transform | `frequency_sum` | 1e-10 at T = 64 frequencies | D T |
| - by the density of y from characteristic functions | `spectral` | 1e-9 at K = 1024 points | D K + K log K |
| - by masses of cells on a lattice, from cdfs | `lattice` | 1e-3 per 64 sites at K = 1024 points | D K log K |
| E softmax(f), f_k Gaussian, k = 1..C | `softmax.probabilities` | 1e-8 up to variances of 300 | C T^2, T = 110 or more |
| E log sum_k exp f_k | `softmax.log_sum_exp` | above, by 0.04 nats at variance 1 | C |

Expectations under a Gaussian of any other likelihood are GPflow's quadrature. Read `projections`
first (the symbols alpha, beta, v and the sites g), then `fourier` (the common interface of the
three routes), then one route, for example `frequency_sum`, and `site_integrals` (how a model
chooses a route, frequencies and points). `products` has the product of characteristic functions and
sums in blocks that fit in memory; `decay` finds sums that end too early.
"""  # noqa: E501

__all__: list[str] = []
