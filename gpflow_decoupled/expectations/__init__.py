"""Expectations under Gaussians, and under sums of independent variables.

One Gaussian: `means` of any function, `peaked` by the place of a bend, `log_means` of densities by
the places of their `bends`, `logit_integrals` and `softmax` for classes. Sums of independent
variables: read `projections`, then `fourier`.
"""

# | integral | file | error | cost per observation |
# |---|---|---|---|
# | E log(1 + e^f), f Gaussian, and its derivatives | `logit_integrals` | 1e-12 | 40 or 112 nodes |
# | the same, bound by R pieces | `logit_integrals` | 1.4e-4 or 3.1e-4 nats, R = 20 | R |
# | E g(f), f Gaussian, g bends near one place | `peaked` | 1e-9 | 128 nodes |
# | E g(f), f Gaussian, g any function | `means` | 2e-9 | 121 nodes, 1,082 or 8,763 |
# | log E p(y given f), f Gaussian, p bends or peaks once | `log_means` | 1e-8 | 384 nodes |
# | E g(y), y = alpha^T v + beta, v independent | `fourier` | below | below |
# | - by a frequency sum, transform of g known | `frequency_sum` | 1e-10, T = 64 frequencies | D T |
# | - by the density of y | `spectral` | 1e-9, K = 1024 points | D K + K log K |
# | - by masses of cells on a lattice | `lattice` | 1e-3 per 64 sites, K = 1024 | D K log K |
# | E softmax(f), f_k Gaussian, k = 1..C | `softmax` | 1e-8 | C T^2, T > 110 |
# | the same, v > 300 | `wide_softmax` | 1e-8 | 30,000 C |
# | E log sum_k exp f_k, an upper bound | `log_sum_exp` | 0.04 nats at variance 1 | C |
#
# GPflow's quadrature serves likelihoods of several latents for a label.

__all__: list[str] = []
