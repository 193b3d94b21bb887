"""Which code runs which architecture of config.json. folder/checkpoint.py refuses the others before torch is
imported."""

from octavo.worker.models.decoder import Decoder
from octavo.worker.models.folder.families import FAMILIES

MODELS: dict[str, type[Decoder]] = dict.fromkeys(FAMILIES, Decoder)
