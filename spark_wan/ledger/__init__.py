"""What a site has applied."""
