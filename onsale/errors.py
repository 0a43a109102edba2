"""`OperatorError`: the one error that a command ends with when a person can put something right."""


class OperatorError(Exception):
    """The message is one line for the operator: what is wrong and, where it helps, what to do. Exit code 2."""
