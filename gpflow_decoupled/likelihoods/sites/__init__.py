"""Sites: an observation's contribution to a bound.

Read `site_loss` (expectations under a Gaussian), `description`, `laplace_site` as an example, and
`registry`. Each family has its file: `gaussian_site`, `laplace_site`, `logit_site`, `probit_site`,
`student_t_site`, `ordinal_site`, `censored_site`, `quantile_site`, `beta_site`, a folder for
`counts`, and `categorical_site`, which couples latents. `expected_loss` serves expectations in
closed form, `quadrature_loss` others, `prior_sites` priors of weights.
"""

# Sites whose second derivative has a closed Fourier transform (docs/mathematics/affine.md), all
# normalised log densities, differentiable in their parameters:
#
# | site | log g(y) | parameters [N] |
# |---|---|---|
# | `logit_site.logistic_site` | log sigma(kappa y) | kappa, of either sign |
# | `laplace_site.laplace_site` | -abs(y - y_0) / tau - log 2 tau | y_0, tau |
# | `student_t_site.student_t_site` | Student-t density of (y - y_0) / s, nu degrees | y_0, s, nu |
# | `gaussian_site.gaussian_site` | normal density of y - y_0, deviation s | y_0, s |

__all__: list[str] = []
