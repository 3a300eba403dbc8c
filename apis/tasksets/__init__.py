"""Published task files: what each needs here, how it is set up and how it is judged."""
