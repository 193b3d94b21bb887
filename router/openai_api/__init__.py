"""Requests of OpenAI's API: each field is read and checked; the error of an invalid one names it.

Process: a router process or one of its tokenizer processes. In: a JSON body, headers, or a protobuf message. Out: a
checked request, or a RequestError. Imports: router.jobs, octavo.shared. PURE: no clock, no network, no tokenizer.
"""
