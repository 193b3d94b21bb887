"""How a rank reaches the others of its stage, and the stages before and after it."""

from typing import TYPE_CHECKING

from octavo.worker.addresses import rendezvous
from octavo.worker.config import is_unix
from octavo.worker.distributed.collective import ALONE, Gathering
from octavo.worker.ipc.process_context import ProcessContext
from octavo.worker.topology import RankPosition

if TYPE_CHECKING:
    from octavo.worker.distributed.pipeline.links import GrpcLinks

HERE = "127.0.0.1"


def collective_of(context: ProcessContext, position: RankPosition) -> Gathering:
    """Waits until every rank of the stage is there: their supervisors end an incarnation that waits too long."""
    layout, config = position.layout, context.config
    if layout.tensor == 1:
        return ALONE
    from octavo.worker.distributed.gloo import Gloo

    pods, own = layout.stage_pods(position.stage), config.peers[config.pod_index] if config.peers else config.group
    meeting = rendezvous(config.peers[pods[0]] if len(pods) > 1 else context.local, context.incarnation)
    host = HERE if len(pods) == 1 or is_unix(own) else own.rpartition(":")[0]
    return Gloo(position.tp_rank, layout.tensor, meeting, context.incarnation, host)


def links_of(context: ProcessContext, position: RankPosition) -> "GrpcLinks | None":
    """None in a group of one stage. Waits until both neighbours are there."""
    if position.layout.pipeline == 1:
        return None
    from octavo.worker.distributed.pipeline.links import GrpcLinks

    links = GrpcLinks(context.config, position, context.incarnation)
    links.connect()
    return links
