"""Small objects in the state of a site: the user's decisions, and what stores them."""
