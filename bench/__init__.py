"""Speed, measured against peers, side by side in one run."""
