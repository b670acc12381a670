"""The kinds of worlds of the simulation: which faults exist in each, and which of them are frequent."""

from dataclasses import fields, replace

from tests.sim.host import Shape

OLD_MS = 10 * 86_400_000

THEMES: dict[str, Shape] = {
    "plain": Shape(elections=False, refusals=False, pauses=False, faults=("takeover", "disconnect")),
    "plain, old records": Shape(record_age_ms=OLD_MS, forgetting=True, elections=False, refusals=False, pauses=False,
                                faults=("takeover", "disconnect", "forget")),
    "views": Shape(compaction=True, elections=False, ledger_faults=False, refusals=False, window=4,
                   faults=("compact", "compact", "takeover", "disconnect")),
    "views of old records": Shape(record_age_ms=OLD_MS, compaction=True, elections=False, refusals=False, window=4,
                                  faults=("compact", "compact", "takeover", "disconnect")),
    "late": Shape(record_age_ms=OLD_MS, late=True, forgetting=True, elections=False, ledger_faults=False,
                  faults=("late", "late", "forget", "disconnect")),
    "refused and forgotten": Shape(record_age_ms=OLD_MS, forgetting=True, elections=False, kills=False, pauses=False,
                                   faults=("refuse-and-forget",)),
    "new topic": Shape(creating=True, faults=("create", "refuse", "disconnect")),
    "unclean": Shape(unclean=True, ledger_faults=False, faults=("bounce", "follower-lag", "elect", "learn")),
    "unclean, old records": Shape(record_age_ms=OLD_MS, forgetting=True, unclean=True, ledger_faults=False,
                                  faults=("bounce", "follower-lag", "elect", "learn")),
    "deposed": Shape(kills=False, ledger_faults=False, refusals=False,
                     faults=("elect", "disconnect", "elect", "learn")),
    "transactions": Shape(transactions=True, faults=("takeover", "ledger")),
    "zombies of old records": Shape(record_age_ms=OLD_MS, forgetting=True, transactions=True,
                                    faults=("takeover", "pause", "wake", "forget", "disconnect")),
    "deposed, young topic": Shape(kills=False, pauses=False, ledger_faults=False, refusals=False,
                                  slow_replication=True, faults=("elect", "metadata", "disconnect")),
    "foreign writers": Shape(foreign=True, transactions=True, faults=("foreign", "foreign", "takeover")),
    "two views": Shape(compaction=True, elections=False, refusals=False, ledger_faults=False, window=4,
                       kills=False, pauses=False, faults=("race", "race", "race")),
    "two views of old records": Shape(record_age_ms=OLD_MS, forgetting=True, compaction=True, elections=False,
                                      refusals=False, twice=True, window=4, faults=("race", "race", "forget")),
    "source truncated": Shape(truncation=True, elections=False, refusals=False,
                              faults=("source-truncate", "takeover", "source-elect", "disconnect")),
    "source truncated twice": Shape(truncation=True, elections=False, refusals=False, faults=(
                              "source-truncate", "takeover", "source-elect", "source-branch", "disconnect")),
    "source truncated, old records": Shape(record_age_ms=OLD_MS, truncation=True, forgetting=True,
                                           faults=("source-truncate", "takeover", "source-elect", "forget")),
    "retention": Shape(retention=True, compaction=True, elections=False, window=4,
                       faults=("expire", "expire", "takeover", "disconnect")),
    "retention of old records": Shape(record_age_ms=OLD_MS, retention=True, forgetting=True, transactions=True,
                                      faults=("expire", "expire", "forget", "takeover")),
    "all that a source does": Shape(transactions=True, compaction=True, retention=True, elections=False, refusals=False,
                                    window=4, faults=("expire", "compact", "takeover", "source-elect", "disconnect")),
    "all that a source does, old records": Shape(record_age_ms=OLD_MS, forgetting=True, transactions=True,
                                                 compaction=True, retention=True, elections=False, window=4,
                                                 faults=("expire", "compact", "takeover", "forget", "disconnect")),
    "refused for what they hold": Shape(poison=True, transactions=True, compaction=True, elections=False,
                                        faults=("decide", "decide", "takeover", "disconnect")),
    "refused for what they hold, old records": Shape(record_age_ms=OLD_MS, forgetting=True, poison=True, twice=True,
                                                     faults=("decide", "decide", "forget", "takeover")),
    "refused and left out": Shape(poison=True, on_reject="skip-unparked", elections=False, window=4,
                                  faults=("takeover", "disconnect", "ledger")),
    "refused and parked": Shape(poison=True, on_reject="skip", transactions=True, compaction=True, window=4,
                                faults=("takeover", "disconnect", "ledger")),
    "refused and parked, old records": Shape(record_age_ms=OLD_MS, forgetting=True, poison=True, on_reject="skip",
                                             twice=True, policies=True, faults=("takeover", "forget", "decide")),
    "sought": Shape(seeks=True, transactions=True, compaction=True, elections=False, window=4,
                    faults=("seek", "seek", "takeover", "disconnect")),
    "sought, old records": Shape(record_age_ms=OLD_MS, seeks=True, forgetting=True, twice=True,
                                 faults=("seek", "seek", "forget", "takeover")),
    "sought, whatever the source does": Shape(seeks=True, retention=True, transactions=True, slow_wire=True, window=4,
                                              faults=("seek", "expire", "source-elect", "takeover")),
    "sought, slow wire": Shape(seeks=True, slow_wire=True, elections=False, refusals=False, ledger_faults=False,
                               window=4, faults=("seek", "seek", "takeover")),
    "sought, unclean": Shape(seeks=True, unclean=True, handed=True, ledger_faults=False,
                             faults=("seek", "bounce", "follower-lag", "elect", "learn")),
    "sought, refused and filtered": Shape(seeks=True, poison=True, policies=True, elections=False,
                                          faults=("seek", "decide", "takeover", "disconnect", "ledger")),
    "sought, source truncated": Shape(seeks=True, truncation=True, elections=False, refusals=False, faults=(
                                      "seek", "seek", "seek", "source-elect", "source-branch", "source-truncate",
                                      "takeover")),
    "policies": Shape(policies=True, transactions=True, elections=False, slow_wire=True,
                      faults=("takeover", "disconnect", "ledger")),
    "policies of old records": Shape(record_age_ms=OLD_MS, policies=True, forgetting=True,
                                     faults=("takeover", "disconnect", "forget", "elect")),
    "twice": Shape(twice=True, faults=("again", "again", "late", "stray", "takeover")),
    "twice, old records": Shape(record_age_ms=OLD_MS, forgetting=True, twice=True, elections=False,
                                faults=("again", "late", "stray", "disconnect")),
    "slow wire, old records": Shape(record_age_ms=OLD_MS, forgetting=True, slow_wire=True, elections=False,
                                    ledger_faults=False, faults=("forget", "disconnect", "takeover")),
    "handed over": Shape(handed=True, kills=False, pauses=False, faults=("disconnect",)),
    "handed over, whatever else happens": Shape(
        handed=True, transactions=True, compaction=True, foreign=True, twice=True, window=4,
        faults=("takeover", "elect", "disconnect")),
    "handed over, unclean": Shape(handed=True, unclean=True, ledger_faults=False,
                                  faults=("bounce", "follower-lag", "elect", "learn")),
    "source truncated, handed over": Shape(handed=True, truncation=True, elections=False, refusals=False,
                                           faults=("source-truncate", "takeover", "source-elect")),
    "unclean, beside others": Shape(unclean=True, foreign=True, compaction=True, twice=True, window=4, faults=(
                                    "takeover", "elect", "disconnect", "bounce", "follower-lag", "learn", "foreign",
                                    "compact")),
    "unclean, beside others, handed over": Shape(
        handed=True, unclean=True, foreign=True, compaction=True, transactions=True, twice=True, window=4, faults=(
            "takeover", "elect", "disconnect", "bounce", "follower-lag", "learn", "foreign", "compact")),
    "handed over, old records": Shape(record_age_ms=OLD_MS, handed=True, forgetting=True, elections=False,
                                      faults=("forget", "takeover", "disconnect")),
    "far": Shape(far=True, slow_wire=True, transactions=True, window=4,
                 faults=("disconnect", "takeover", "elect", "refuse", "late")),
    "far, old records": Shape(record_age_ms=OLD_MS, far=True, slow_wire=True, forgetting=True, late=True, window=4,
                              faults=("disconnect", "takeover", "forget", "refuse-and-forget", "elect")),
    "far, unclean": Shape(far=True, slow_wire=True, unclean=True, twice=True, ledger_faults=False, window=4,
                          faults=("disconnect", "bounce", "follower-lag", "elect", "learn")),
    "acknowledged together": Shape(together=True, twice=True, foreign=True,
                                   faults=("disconnect", "elect", "foreign", "again")),
    "acknowledged together, old records": Shape(
        record_age_ms=OLD_MS, together=True, forgetting=True, handed=True, seeks=True,
        faults=("forget", "takeover", "disconnect", "seek")),
    "compacted copy": Shape(cleans=True, refusals=False, faults=("clean", "overtake", "takeover", "disconnect")),
    "compacted copy, old records": Shape(record_age_ms=OLD_MS, cleans=True, forgetting=True,
                                         faults=("clean", "overtake", "forget", "takeover")),
    "compacted copy, beside others": Shape(cleans=True, foreign=True,
                                           faults=("clean", "overtake", "foreign", "takeover", "elect")),
    "compacted copy, beside others, old records": Shape(
        record_age_ms=OLD_MS, cleans=True, foreign=True, forgetting=True, elections=False,
        faults=("overtake", "overtake", "overtake", "takeover", "disconnect")),
    "compacted copy, unclean": Shape(cleans=True, keys=20, unclean=True, forgetting=True, record_age_ms=OLD_MS,
                                     ledger_faults=False,
                                     faults=("overtake", "overtake", "bounce", "follower-lag", "elect", "learn")),
    "compacted copy, unclean, beside others": Shape(
        cleans=True, unclean=True, foreign=True, record_age_ms=OLD_MS, forgetting=True, ledger_faults=False,
        faults=("overtake", "overtake", "overtake", "bounce", "follower-lag", "elect", "learn")),
    "several daemons": Shape(daemons=True, transactions=True, compaction=True, window=4,
                             faults=("lease", "lease", "pause", "wake", "disconnect")),
    "several daemons, old records": Shape(record_age_ms=OLD_MS, daemons=True, forgetting=True, handed=True, twice=True,
                                          elections=False, faults=("lease", "lease", "pause", "wake", "forget")),
    "frozen": Shape(frozen=True, pauses=False, elections=False, faults=("freeze", "freeze", "thaw", "disconnect")),
    "frozen, old records": Shape(record_age_ms=OLD_MS, frozen=True, forgetting=True, elections=False,
                                 ledger_faults=False, faults=("freeze", "freeze", "thaw", "thaw", "forget")),
    "slow answers": Shape(slow_answers=True, transactions=True, compaction=True, window=4,
                          faults=("disconnect", "takeover", "elect")),
    "slow answers, old records": Shape(record_age_ms=OLD_MS, slow_answers=True, forgetting=True, handed=True,
                                       twice=True, faults=("disconnect", "takeover", "forget", "elect")),
    "suspended brokers": Shape(suspends=True, slow_answers=True, truncation=True, faults=(
                               "suspend", "suspend", "takeover", "disconnect", "source-truncate")),
    "suspended brokers, old records": Shape(record_age_ms=OLD_MS, suspends=True, slow_answers=True, forgetting=True,
                                            handed=True, faults=("suspend", "suspend", "disconnect", "forget")),
    "throttled, old records": Shape(record_age_ms=OLD_MS, throttles=True, slow_answers=True, slow_wire=True,
                                    forgetting=True, elections=False,
                                    faults=("throttle", "throttle", "forget", "takeover")),
    "failover": Shape(failover=True, window=4, faults=("take-lease", "process-pause", "takeover", "disconnect")),
    "failover, old records": Shape(record_age_ms=OLD_MS, failover=True, forgetting=True, elections=False, foreign=True,
                                   faults=("take-lease", "process-crash", "forget", "foreign", "disconnect")),
    "failover, deposed": Shape(failover=True, slow_replication=True, refusals=False, window=4,
                               faults=("elect", "elect", "metadata", "learn", "disconnect", "take-lease")),
    "failover, handed over": Shape(failover=True, handed=True, compaction=True, slow_wire=True, window=4,
                                   faults=("kill", "kill", "race", "disconnect", "process-crash")),
    "failover, transactions": Shape(failover=True, transactions=True, compaction=True, window=4,
                                    faults=("take-lease", "process-crash", "compact", "ledger")),
    "failover, slow": Shape(failover=True, slow_wire=True, handed=True, twice=True, slow_replication=True, window=4,
                            faults=("take-lease", "process-crash", "kill", "pause", "wake", "disconnect", "again")),
    "failover, refused and forgotten": Shape(record_age_ms=OLD_MS, failover=True, forgetting=True, elections=False,
                                             kills=False, pauses=False, faults=("refuse-and-forget",) * 3),
    "failover, misled": Shape(failover=True, misled=True, window=4, faults=("mislead", "mislead", "disconnect")),
    "failover, unclean": Shape(failover=True, unclean=True, foreign=True, ledger_faults=False,
                               faults=("take-lease", "bounce", "follower-lag", "elect", "learn")),
    "failover, frozen": Shape(failover=True, frozen=True, pauses=False, elections=False,
                              faults=("take-lease", "freeze", "freeze", "thaw", "process-pause")),
    "failover, source truncated": Shape(failover=True, truncation=True, retention=True, elections=False,
                                        faults=("take-lease", "source-truncate", "source-elect", "expire")),
    "target retention": Shape(expires=True, faults=("expire-target", "outlive", "takeover", "disconnect")),
    "target retention, old records": Shape(record_age_ms=OLD_MS, expires=True, forgetting=True, elections=False,
                                           faults=("expire-target", "outlive", "forget", "takeover")),
}  # fmt: skip


FAILOVERS = tuple(theme for theme, shape in THEMES.items() if shape.failover)
PLAIN = ("plain", "plain, old records")
YOUNG = {
    *PLAIN,
    *(theme for theme, shape in THEMES.items() if shape.daemons),
    "retention", "retention of old records", "all that a source does", "all that a source does, old records",
    "source truncated twice", "source truncated, old records",
    *(theme for theme, shape in THEMES.items() if shape.poison),
    *(theme for theme, shape in THEMES.items() if shape.cleans),
    *(theme for theme, shape in THEMES.items() if shape.frozen or shape.slow_answers or shape.throttles),
    *(theme for theme, shape in THEMES.items() if shape.expires or shape.failover),
    "policies", "policies of old records", "unclean, beside others",
    *(theme for theme, shape in THEMES.items() if shape.handed or shape.seeks or shape.far or shape.together),
}  # fmt: skip
BY_CHANCE = sorted(THEMES.keys() - YOUNG)
"""Themes of random stories. Newer themes are played only by name, so that seeds that once failed keep their stories."""


BESIDE = " + "
"""Separates the names of two themes of one world."""


def shape_named(name: str) -> Shape:
    """The world of a theme or of two themes: it has the unusual settings and the frequent faults of both."""
    one, _, other = name.partition(BESIDE)
    if not other:
        return THEMES[one]
    first, second, usual = THEMES[one], THEMES[other], Shape()
    differs = {each.name: getattr(second, each.name) for each in fields(Shape)}
    differs = {key: value for key, value in differs.items() if value != getattr(usual, key)}
    return replace(first, **differs | {"faults": first.faults + second.faults})
