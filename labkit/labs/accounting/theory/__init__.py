"""What fits and what keeps up, from sizes alone: units, models, bytes a device, seconds of a forward."""
