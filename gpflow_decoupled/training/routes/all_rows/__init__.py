"""How `fit` trains kernel, noise and inducing points on all rows at once, for Gaussian noise.

`climb` is L-BFGS on the bound at the best q(u); `step` takes steps on minibatches before it;
`parts` makes the step, and its `batches`, which know all rows.
"""

__all__: list[str] = []
