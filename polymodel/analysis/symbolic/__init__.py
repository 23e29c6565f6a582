"""Closed forms in tile-size symbols; imports nothing from the other engines."""

from polymodel.analysis.symbolic.engine import ENGINE as ENGINE
from polymodel.analysis.symbolic.engine import Symbolic as Symbolic
from polymodel.analysis.symbolic.engine import closed_counts as closed_counts
from polymodel.analysis.symbolic.engine import refuse_rounding as refuse_rounding
