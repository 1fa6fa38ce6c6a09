"""A worker's module that cannot be imported, on purpose."""

import a_library_that_nobody_has  # noqa: F401
