"""Gathers the steps that a start would take for one flow; each part of mirrord that alters clusters has its line."""

from mirrord.cluster.steps import Step, topic_steps
from mirrord.model.config import Config
from mirrord.shell.survey import FlowSurvey


async def planned_steps(config: Config, survey: FlowSurvey) -> list[Step]:  # noqa: ARG001 - others will ask
    """All steps for the flow, in the order in which they are taken. Raises EnvironmentFault."""
    return list(topic_steps(survey.flow, survey.looked.plan, survey.looked.target.topics))
