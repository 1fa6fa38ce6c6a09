"""What replicating and sharding cost, before anything runs: shapes, bytes held, bytes sent."""
