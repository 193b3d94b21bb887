"""From a job to the group that runs it: queue, choice of a group, streams to the leaders, retries.

Process: a router process. In: jobs from router.frontend; tokens, credit and errors from leaders, by gRPC. Out: requests
to leaders; tokens into a job's sink. Imports: router.jobs, and its own rules and policies.
"""
