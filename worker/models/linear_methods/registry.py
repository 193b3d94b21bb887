"""Which linear method a checkpoint's config.json asks for: quantization_config.quant_method names it."""

from collections.abc import Mapping

from octavo.worker.models.config.json_fields import Json, wrong
from octavo.worker.models.config.tensor_specs import Parameters, Split, TensorSpec, Vector
from octavo.worker.models.linear_methods.linear_method import LinearMethod
from octavo.worker.models.linear_methods.unquantized import Unquantized

METHODS: Mapping[str | None, LinearMethod] = {
    None: Unquantized(),
}


def read_method(raw: Json) -> str | None:
    """Name of the method, None of checkpoints that are not quantised. Raises FieldInvalid."""
    settings = raw.get("quantization_config")
    if settings is None or settings == {}:
        return None
    name = settings.get("quant_method") if isinstance(settings, dict) else None
    if not isinstance(name, str) or name not in METHODS:
        wrong("quantization_config", settings, "quantised checkpoints are not supported")
    return name


def layer_tensors(parameters: Parameters, method: LinearMethod) -> dict[str, TensorSpec]:
    """The tensors of a layer with these parameters, by the checkpoint's names."""
    specs = dict[str, TensorSpec]()
    for parameter in parameters.values():
        if isinstance(parameter, Vector):
            specs[parameter.name] = TensorSpec((parameter.size,), Split.WHOLE)
            continue
        for part in parameter.parts:
            specs |= {f"{part.name}.{name}": spec for name, spec in method.tensors(part, parameter).items()}
    return specs
