"""Channel on Kafka: three topics, a log that is valid as a fold (decision 30)."""
