"""What clients ask in OpenAI's words: each field read, bounded and checked; a bad one is an error that names it.

Process: a router process or one of its tokenizer processes. In: a JSON body, headers, or a protobuf message. Out: a
checked request, or a RequestError. Imports: router.jobs. PURE: no clock, no network, no tokenizer.
"""
