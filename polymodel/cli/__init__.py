"""The command line: `polymodel validate | show | evaluate | compare | timeline | sweep | explore | ...`.

Each command is one module with `NAME`, `ABOUT`, `add_options` and `run`; `app` assembles them.
"""

from polymodel.cli.app import build_parser as build_parser
from polymodel.cli.app import main as main
from polymodel.cli.codes import BAD_INPUT as BAD_INPUT
from polymodel.cli.codes import BUG as BUG
from polymodel.cli.codes import FINE as FINE
from polymodel.cli.codes import INFEASIBLE as INFEASIBLE
from polymodel.cli.codes import INTERRUPTED as INTERRUPTED
from polymodel.cli.codes import REFUSED as REFUSED
