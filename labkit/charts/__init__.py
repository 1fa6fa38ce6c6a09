"""The canvas and palette, and the parts that all figures are composed of."""
