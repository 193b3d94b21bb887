"""One builder for each kind of object of a service: pure functions from the resource to Kubernetes JSON."""
