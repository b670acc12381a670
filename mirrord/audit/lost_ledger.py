"""Finds out whether a flow's ledger is lost. A ledger counts as lost if it is missing, corrupt, empty or shorter than
it once was, or if it does not account for records in the target topics."""

from mirrord.config.schema import Config, FlowConfig
from mirrord.ledger.errors import (
    LedgerCorrupt,
    LedgerMissing,
    LedgerWentBack,
    NotSigned,
    SignedLedger,
    TooNew,
    UnknownKey,
)
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ledger_topic, state_topic
from mirrord.operations.cluster_survey import FlowSurvey, survey_flows
from mirrord.operations.start_offset_preview import find_beginnings

PATIENCE_S = 30.0


async def lost(config: Config, flow: FlowConfig) -> str:
    """Return what is wrong with the flow's ledger, or an empty string if the ledger is complete.

    Raises EnvironmentFault if the state of the ledger cannot be determined, for example because a key is missing in the
    configuration.
    """
    store = ClusterAccess(config, PATIENCE_S).ledger(flow)
    try:
        await store.open(read_only=True)
    except (NotSigned, SignedLedger, TooNew, UnknownKey) as error:
        # The facts are there. They are only not readable with this configuration, or by this version.
        raise EnvironmentFault(
            f"{error}. The ledger is not lost, so it is not rebuilt. If it has to be given up nevertheless, delete its "
            f"topics {ledger_topic(flow.name)} and {state_topic(flow.name)} first"
        ) from error
    except (LedgerMissing, LedgerWentBack, LedgerCorrupt) as error:
        return str(error)
    try:
        state = store.state
    finally:
        await store.close()
    if not state.flow:
        return "the ledger is empty"
    survey = await survey_of(config, flow)
    lanes = survey.preview.plan.lanes
    if all(
        known is not None and len(known.source_runs) for known in map(state.lanes.get, (each.lane for each in lanes))
    ):
        return ""
    unknown = [each for each in await find_beginnings(config, survey) if each.by == "unknown"]
    if not unknown:
        return ""
    first, more = unknown[0], f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return f"the ledger does not know the records in {first.target_topic}-{first.partition}{more}"


async def survey_of(config: Config, flow: FlowConfig) -> FlowSurvey:
    """Return the survey of one flow: the topics on its two clusters, and the lanes that `mirrord start` would run.
    Raises EnvironmentFault."""
    survey = (await survey_flows(config.only((flow,)), ClusterAccess(config, PATIENCE_S)))[flow.name]
    if not isinstance(survey, FlowSurvey):
        raise survey
    return survey
