"""Values only: definitions, runtime records, variables, units of work."""
