"""The KV cache as the scheduler sees it: numbers of blocks and what they hold."""
