"""The exit codes of all commands."""

FINE, INFEASIBLE, BAD_INPUT, REFUSED, BUG = 0, 1, 2, 3, 70
INTERRUPTED = 130  # the exit code that shells use for SIGINT

EXPLAINED = (
    "exit codes: 0 fine, 1 infeasible, 2 bad input, 3 refused (outside what is counted exactly), or "
    "out of memory or time, 70 a bug of polymodel's own, 130 interrupted (a sweep or an exploration prints "
    "what it has found)"
)
