"""Small objects in the state of a site: decisions and checkpoints, and what stores them."""
