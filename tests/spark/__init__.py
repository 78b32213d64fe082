"""What archives are tried on: real brokers, stores and Spark."""
