"""The site of one observation: what it contributes to a bound, as a function of the distribution of
its latent function.

`description.py` defines `SiteDescription`, the one record of what is known of the sites of a
likelihood; `registry.py` says which description belongs to which class of likelihoods; `lookup.py`,
one folder up, has the functions that the rest of the package calls. A family of likelihoods is one
file (`gaussian`, `laplace`, `logit`, `probit`, `student_t`, `log_linear`, `negative_binomial`),
with all of its formulas; `quadrature.py` serves likelihoods without closed forms, and `priors.py`
priors of weights. Read `site_loss.py` (expectations under a Gaussian) first, then `description.py`,
`laplace.py` as an example, and `registry.py`.

Sites whose second derivative has a Fourier transform in closed form (section 4.3 of the notes on
affine-independent inference):

| site | log g(y) | parameters [N] |
|---|---|---|
| `logit.logistic_site` | log sigma(kappa y) | kappa, of either sign |
| `laplace.laplace_site` | -abs(y - y_0) / tau - log 2 tau | y_0, tau |
| `student_t.student_t_site` | Student-t density of (y - y_0) / s, nu degrees of freedom | y_0, s, nu |
| `gaussian.gaussian_site` | normal density of y - y_0, standard deviation s | y_0, s |

All are exact log densities, so that bounds on log Z come out normalised, and all are differentiable
in their parameters.
"""  # noqa: E501

__all__: list[str] = []
