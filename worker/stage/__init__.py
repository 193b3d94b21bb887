"""The links between the stages of a pipeline, over gRPC."""
