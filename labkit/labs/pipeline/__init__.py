"""Lab 03, pipeline: BERT over several GPUs; where does the time go in which no stage works, and who fills it?"""

from labkit.labs import front_door

__getattr__, __all__ = front_door(
    __name__,
    plan=["Answer", "Gpus", "Layers", "MicroBatches", "Precisions", "Schedules", "Splits", "Trial"],
    tables=["best", "parts", "splits_ranked"],
)
