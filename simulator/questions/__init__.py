"""What a user asks, in the words of the command line; a published measurement is turned into the same questions."""
