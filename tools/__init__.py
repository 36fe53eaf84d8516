"""What make runs for the people who work on this project."""
