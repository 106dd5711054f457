"""Small objects in a site's state: the user's decisions, and what stores them."""
