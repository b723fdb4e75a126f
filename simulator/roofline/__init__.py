"""Operations to seconds: the roofline of each operation, collectives, and the time of a whole step."""
