"""A command each: options in, a result out."""
