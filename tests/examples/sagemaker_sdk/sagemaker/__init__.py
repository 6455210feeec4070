"""What AWS's integration tests take from SageMaker's SDK: its local mode, with this server in place of a container."""
