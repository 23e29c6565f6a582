"""`load` and `Spec`: from files, library names or Python objects to a checked spec."""

from polymodel.loading.reading import load
from polymodel.loading.spec import Spec
from polymodel.mapping.resolve import mapping_to_yaml

__all__ = ["Spec", "load", "mapping_to_yaml"]
