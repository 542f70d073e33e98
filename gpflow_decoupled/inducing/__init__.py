"""Choice and checks of inducing inputs."""

from .checks import check_disjoint, check_inducing
from .select import select

__all__ = ["check_disjoint", "check_inducing", "select"]
