"""Lab 03's own model of a pipeline, without torch: ways to split, schedules as lists of steps, a simulator."""
