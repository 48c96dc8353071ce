"""Submit a data command to an Apache Flink cluster, start one on this machine, and run the workers of TaskManagers."""
