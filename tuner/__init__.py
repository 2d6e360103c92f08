"""What to try, and which is best: engines, workloads, search, verdict, exports, command line."""
