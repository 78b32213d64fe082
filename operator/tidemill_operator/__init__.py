"""The operator: what Kubernetes objects say, made true."""
