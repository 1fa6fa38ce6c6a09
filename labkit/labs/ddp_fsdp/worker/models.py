"""BERT for classification, whole: lab 03's stage with every layer in it, and a forward that gives the loss."""

from __future__ import annotations
