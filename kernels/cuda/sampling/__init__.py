"""From logits to next tokens on NVIDIA GPUs: changes of logits, draws, and log-probabilities.

Process: a rank with a GPU, of a pipeline's last stage. In: logits and the requests' sampling state. Out: token ids and
log-probabilities, on the device. Imports: torch, kernels.cuda's library and checks, and step_layout.
"""
