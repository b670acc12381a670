"""The Python API that translates offsets on one cluster into offsets on the other.

    from mirrord.translate import Question, translate

    answer = translate("conf.toml", Question(flow="eu-us", topic="orders", partition=3, offset=120))
    if answer.offset is not None:
        consumer.seek(answer.offset)

The daemon does not need to run, because the offset map is read from the target cluster. The source cluster is queried
only if a question contains a time in the source log instead of an offset. docs/explanation/offset-map.md explains the
answers.
"""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from mirrord.config.loader import load_file
from mirrord.config.schema import Config
from mirrord.groups.offset_translation_queries import Answer, Chart, Place, Question, answer, chart
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.operations.status_report import PATIENCE_S

__all__ = ["Answer", "Place", "Question", "translate", "translate_all"]


def translate(conf: Config | str | Path, question: Question) -> Answer:
    """Return the answer to one question. `conf` is a configuration or the path of a configuration file. Raises the same
    errors as `translate_all`.
    """
    (answer,) = translate_all(conf, [question])
    return answer


def translate_all(conf: Config | str | Path, questions: Iterable[Question]) -> list[Answer]:
    """Return the answers in the order of the questions. The ledger of each flow is read once.

    Raises ConfigError if the configuration is invalid, or if the flow, topic or partition is unknown. Raises
    EnvironmentFault if the target does not answer. If a question contains a time in the source log, EnvironmentFault is
    also raised if the source does not answer.
    """
    config = conf if isinstance(conf, Config) else load_file(str(conf)).config
    return asyncio.run(_translate_all(config, list(questions)))


async def _translate_all(config: Config, questions: Sequence[Question]) -> list[Answer]:
    access = ClusterAccess(config, PATIENCE_S)
    charts: dict[str, Chart] = {}
    for name in dict.fromkeys(question.flow for question in questions):
        store = access.ledger(config.flow(name))
        await store.open(read_only=True)
        try:
            charts[name] = await chart(store)
        finally:
            await store.close()
    return [await answer(config, charts[question.flow], question) for question in questions]
