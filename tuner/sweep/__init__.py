"""The search: a spec, a study that one coordinator owns, and a worker process for every trial."""
