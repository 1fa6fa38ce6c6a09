"""A worker's module that names a network device that rank 1 does not have."""

import os

import failing_plan  # noqa: F401  (a plan is read back by its class, which must be known here)

if os.environ.get("RANK") == "1":
    os.environ["GLOO_SOCKET_IFNAME"] = "nowhere0"
