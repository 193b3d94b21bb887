"""The path of one request, whichever protocol brought it: read, prepare, submit, answer as tokens come, settle.

Process: a router process. In: requests of clients. Out: answers; jobs to router.dispatch through the protocol in
router.jobs. Imports: router.tokenizer_pool, router.answers, router.openai_api, router.metrics; never router.dispatch.
"""
