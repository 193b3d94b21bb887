"""How much of an answer may wait for a client that reads slowly."""

BUFFER_BYTES = 65_536  # written to the connection and not read; what comes then is merged
MERGED_CHARACTERS = 4 << 20  # merged for one generation; beyond it the client is cut off
