"""The ends of the line: one JSON body, server-sent events on a connection, or messages of a gRPC call.

Process: a router process. In: pieces of an answer. Out: a formatter's bytes in the protocol's
frames, or protobuf messages. Imports: router.answers.formatters, router.answers.delta, router.jobs.
"""
