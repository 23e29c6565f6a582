"""matplotlib without a trace: what it would keep in the user's home goes to a temporary folder."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

from polymodel.report.epoch import pinned


def without_trace() -> None:
    """Import matplotlib so that it writes to no folder of the user's.

    On its first import it lists all fonts of the system and keeps the list in the home directory. Unless
    MPLCONFIGDIR names a folder for that, or the caller has imported it already, it gets a folder of its own
    that is removed at exit; a list, settings and styles that are in the home directory are used there.
    SpecError for a SOURCE_DATE_EPOCH that it could not read.
    """
    pinned()
    if "matplotlib" in sys.modules or os.environ.get("MPLCONFIGDIR"):
        return
    own, process = tempfile.mkdtemp(prefix="polymodel-"), os.getpid()
    atexit.register(lambda: shutil.rmtree(own, ignore_errors=True) if os.getpid() == process else None)
    _take(Path(own))
    os.environ["MPLCONFIGDIR"] = own
    try:
        import matplotlib.font_manager

        # Asked once, they are remembered: programs that this one starts need not know of the folder.
        matplotlib.get_configdir()
        matplotlib.get_cachedir()
    finally:
        del os.environ["MPLCONFIGDIR"]


def _take(own: Path) -> None:
    """Copies of what matplotlib has kept before."""
    for place in _homes():
        try:
            for file in [place / "matplotlibrc", *place.glob("fontlist-*.json")]:
                if file.is_file() and not (own / file.name).exists():
                    shutil.copyfile(file, own / file.name)
            if (place / "stylelib").is_dir() and not (own / "stylelib").exists():
                shutil.copytree(place / "stylelib", own / "stylelib")
        except OSError:
            continue  # what cannot be read is made again


def _homes() -> list[Path]:
    """Where matplotlib keeps settings, and where caches, as its documentation says."""
    try:
        home = Path.home()
    except RuntimeError:  # there is none
        return []
    if sys.platform.startswith(("linux", "freebsd")):
        pairs = (("XDG_CONFIG_HOME", ".config"), ("XDG_CACHE_HOME", ".cache"))
        return [Path(os.environ.get(name) or home / usual) / "matplotlib" for name, usual in pairs]
    if sys.platform == "win32" and not (home / ".matplotlib").is_dir() and os.environ.get("LOCALAPPDATA"):
        return [Path(os.environ["LOCALAPPDATA"]) / "matplotlib"]
    return [home / ".matplotlib"]
