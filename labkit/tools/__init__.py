"""Commands behind make targets: scorecard, bench."""
