"""Channel on Kafka: three topics, a log whose records say which of them count (decision 30)."""
