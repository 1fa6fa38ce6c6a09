"""The units that sizes are counted in, in bytes: binary ones for memory, decimal ones for rates of links."""

KIB, MIB, GIB = 2**10, 2**20, 2**30
MB, GB = 1e6, 1e9
