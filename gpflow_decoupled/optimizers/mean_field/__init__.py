"""Mean-field conjugate computation on factor graphs (Khan & Lin 2017)."""

__all__: list[str] = []
