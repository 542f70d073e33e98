"""Sites of counts and of rates exp(f).

Read `log_linear_site` (Poisson, exponential, gamma, Tweedie), then `binomial_site` and
`negative_binomial_site`.
"""

__all__: list[str] = []
