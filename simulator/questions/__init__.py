"""Questions as users type them, a field for each option, and their answers; `validate` asks the same questions."""
