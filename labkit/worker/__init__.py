"""What several labs' workers need: settings, clocks, models, trainer, strategies, data, counts, traces, memory."""
