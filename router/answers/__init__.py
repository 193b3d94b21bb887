"""From tokens to an answer, in a line: ids -> generation -> [parsed_answer] -> writer -> formatter -> bytes.

generation.py makes text of ids and finds stop strings (detailed_generation.py: with log-probabilities and ids);
parsed_answer.py finds reasoning and calls; writers/ sends, at once or as it comes; formatters/ knows the APIs.

Process: a router process, in the handler of the message that brought the tokens. In: token ids from router.dispatch.
Out: bytes for the client's connection. Imports: router.text, router.parsers, router.openai_api, router.jobs.
"""
