"""The energy model `hwcomponents`: figures from the package of that name and the model packages beside it.

`component` names one of its components (`hwc --list` shows them), `options` are its attributes, in SI
units. Interface: https://accelergy-project.github.io/hwcomponents/.
"""

from __future__ import annotations

import re
from importlib.metadata import version

from polymodel.spec.energy import EnergyAnswer, EnergyRequest
from polymodel.spec.faults import TextFault

_REASON = re.compile(r"\b\w*(?:Error|Exception): .*")


def answer(request: EnergyRequest) -> EnergyAnswer:
    """Area, leakage and the energies of those actions that the component has; TextFault if there is none."""
    try:
        import hwcomponents
    except ModuleNotFoundError as error:
        raise TextFault(
            "hwcomponents is not installed",
            0,
            "pip install 'polymodel[hwcomponents]' under Python 3.12 or newer",
        ) from error
    name, attributes = request.component, dict(request.options)
    try:
        found = hwcomponents.get_model(name, attributes)
    except RuntimeError as error:
        reasons = _REASON.findall(str(error))
        why = f": {reasons[-1].rstrip('. ')}" if reasons else ""
        raise TextFault(
            f"hwcomponents has no {name} with these attributes{why}", 0, "`hwc --list` shows what it has"
        ) from error
    values = {"area": float(found.area), "leak_power": float(found.leak_power)}
    for action in request.quantities:
        if action in found.get_action_names():
            # Compute counts operations, whatever their width.
            bits = {} if action == "compute" else {"bits_per_action": request.bits_per_action.get(action, 1)}
            cost = hwcomponents.get_action_cost(name, attributes, action, bits)
            values[action] = float(cost.energy)
    package = type(found).__module__.partition(".")[0]
    origin = f"hwcomponents {version('hwcomponents')}: {type(found).__name__} of {package}"
    return EnergyAnswer(values, dict.fromkeys(values, origin))
