"""From exemplars of tasks to functions of an application: what a language model is asked, and what is taken of it."""
