"""What the template brings: a family of tasks, an application and a metric."""
