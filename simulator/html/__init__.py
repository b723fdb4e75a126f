"""Pages to hand on: an answer as one HTML file that needs nothing else, from blocks that are already computed."""
