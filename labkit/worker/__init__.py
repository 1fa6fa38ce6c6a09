"""What more than one lab's workers need: settings, clocks, models, the trainer, strategies, data, counting, traces."""
