"""Find the arguments that a function's result depends on."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Var


def used_arguments(function: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]) -> set[str]:
    """Return the names of the arguments that the result of a function depends on.

    Differentiation gives zeros for the others. A variable that the loss does not depend on must not be updated, not
    even by weight decay, as in the released code.

    Args:
        function: function of a dict of arrays.
        arguments: arrays or shapes by name.
    """
    program = jax.make_jaxpr(function)(arguments).jaxpr
    needed = {variable for variable in program.outvars if isinstance(variable, Var)}
    for equation in reversed(program.eqns):
        if needed.intersection(equation.outvars):
            needed.update(variable for variable in equation.invars if isinstance(variable, Var))
    # The leaves of a dict are in the order of its sorted keys.
    return {name for name, variable in zip(sorted(arguments), program.invars, strict=True) if variable in needed}
