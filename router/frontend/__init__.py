"""The pipeline of one request over either protocol: read, prepare, submit, write the answer as tokens come, clean up.

Process: a router process. In: requests of clients. Out: answers; jobs to router.dispatch through the protocol in
router.jobs. Imports: router.tokenizer_pool, router.answers, router.openai_api, router.metrics; never router.dispatch.
"""
