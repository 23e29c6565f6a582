"""Reference data of sparse tensors: which check a file's content asks for.

A file may hold data for several checks; all that recognise it are run.
"""

from __future__ import annotations

from tests.reference import (
    teaal_density,
    teaal_facts,
    teaal_formats,
    teaal_partition,
    teaal_tensaurus,
    teaal_traffic,
)
from tests.reference.topics import Topics

_TOPICS = Topics(
    {
        "density": (teaal_density.is_statistics, teaal_density.check),
        "expectations": (teaal_density.is_expectations, teaal_density.check),
        "kernels": (teaal_tensaurus.is_kernels, teaal_tensaurus.check),
        "partitionings": (teaal_partition.is_partitions, teaal_partition.check),
        "slices": (teaal_partition.is_slices, teaal_partition.check_slices),
        "footprints": (teaal_formats.is_footprints, teaal_formats.check),
        "ciss": (teaal_formats.is_facts, teaal_formats.check),
        "facts": (teaal_facts.is_facts, teaal_facts.check),
        "artifact": (teaal_facts.is_artifact, teaal_facts.check),
        "accelerators": (teaal_traffic.is_accelerators, teaal_traffic.check),
        "buffets": (teaal_traffic.is_buffets, teaal_traffic.check),
    }
)
topics_of, check = _TOPICS.of, _TOPICS.check
