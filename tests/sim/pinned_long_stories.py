"""Long stories that once failed: seed, theme, mode, traps (`tests.sim.test_sim`)."""

from mirrord.ledger.facts.core import Mode

LONG: tuple[tuple[int, str, Mode, tuple[str, ...]], ...] = (
    (
        839006218064,
        "target retention",
        "at-least-once",
        ("another_branch", "lost_beside_a_hole", "expired_and_compared_again"),
    ),
    (
        1049825571003,
        "plain, old records",
        "sequence",
        ("lease_before_a_fact_is_written", "source_ends_below_the_copies", "expired_while_away"),
    ),
    (
        1055167889428,
        "source truncated, old records",
        "at-least-once",
        ("removed_from_its_batch", "lost_and_expired", "cleaned_before_a_takeover"),
    ),
    (
        354255650844,
        "plain, old records",
        "sequence",
        ("truncated_after_an_epoch", "deleted_under_late_bytes", "unreadable_gap", "bytes_after_the_next_holder"),
    ),
    (
        586390548859,
        "target retention",
        "sequence",
        (
            "bytes_of_the_former_holder",
            "lost_twice",
            "bytes_after_the_next_holder",
            "a_gap_before_the_ledger_answers",
        ),
    ),
    (898560975924, "compacted copy", "sequence", ("a_gap_before_the_ledger_answers", "letters_in_doubt")),
    (
        90314875899,
        "plain, old records",
        "sequence",
        ("truncated_after_an_epoch", "letters_in_doubt", "a_gap_before_the_ledger_answers"),
    ),
    (468447523379, "sought, refused and filtered", "sequence", ("another_branch",)),
    (606876713370, "target retention, old records", "at-least-once", ("others_where_all_copies_were",)),
    (
        391158409425,
        "plain",
        "sequence",
        ("isolation_changed", "removed_from_its_batch", "lost_beside_others", "lost_and_expired"),
    ),
    (
        420656938894,
        "sought, refused and filtered",
        "sequence",
        (
            "removed_under_way",
            "removed_under_a_former_holder",
            "removed_under_a_dead_holder",
            "batch_where_copies_were",
        ),
    ),
    # The source deleted records that were to be copied again
    (
        495137029483,
        "plain",
        "sequence",
        ("lost_beside_a_hole", "sought_before_a_takeover", "expired_while_away"),
    ),
    (
        526591830461,
        "refused and parked, old records",
        "sequence",
        ("batch_where_copies_were", "lost_while_idle", "expired_before_it_arrives"),
    ),
    # Nothing shows that the source has used the offsets of aborted records again
    (
        497327090786,
        "refused and parked, old records",
        "sequence",
        ("removed_under_way", "removed_beside_a_hole", "another_branch", "expired_while_away"),
    ),
    (
        411071184208,
        "late",
        "sequence",
        ("a_gap_before_the_ledger_answers", "leader_in_the_sandwich", "expired_while_away", "another_branch"),
    ),
    (852492726432, "source truncated", "sequence", ("another_branch", "letters_in_doubt")),
    (
        681306758800,
        "plain",
        "sequence",
        ("letters_in_doubt", "lost_before_a_comparison", "truncated_while_away"),
    ),
    (1098195756766, "source truncated", "sequence", ("letters_in_doubt", "another_branch")),
    (991551390201, "target retention, old records", "sequence", ("cleaned_before_a_takeover", "lost_beside_others")),
    (
        933169076796,
        "plain",
        "sequence",
        (
            "refused_and_forgotten",
            "source_ends_below_the_copies",
            "position_of_a_slow_first_holder",
            "batch_where_copies_were",
        ),
    ),
    (
        174783548694,
        "retention",
        "sequence",
        ("foreign_between_two_batches", "another_branch", "lost_beside_a_hole", "expired_while_away"),
    ),
    (
        955408873624,
        "source truncated, handed over",
        "sequence",
        ("two_takers_at_once", "letters_in_doubt", "unreplicated_at_the_start"),
    ),
    (791215179570, "target retention", "sequence", ("lost_beside_others", "last_records_cleaned")),
    # The state had forgotten verdicts that no longer applied
    (
        921392853632,
        "plain",
        "sequence",
        ("killed_with_decided_records", "disconnected_with_decided_records", "everything_lost_before_a_handoff"),
    ),
    (
        1090902750124,
        "suspended brokers",
        "sequence",
        ("killed_with_decided_records", "disconnected_with_decided_records", "everything_lost_before_a_handoff"),
    ),
    # An election brought back records whose ordinals had been given to others, and the source had deleted both
    (
        769700231751,
        "compacted copy, beside others, old records",
        "sequence",
        ("expired_while_away", "election_while_idle", "bytes_after_a_drain"),
    ),
    # The source lost records that had been left out of a compacted copy
    (
        100603398303,
        "compacted copy, unclean, beside others + source truncated twice",
        "sequence",
        ("drain_in_doubt", "everything_lost_before_a_handoff", "lost_while_idle"),
    ),
    (
        531910410049,
        "compacted copy, beside others, old records",
        "sequence",
        (
            "another_branch",
            "batch_where_copies_were",
            "lease_of_a_suspended_daemon",
            "everything_lost_before_a_handoff",
        ),
    ),
    (
        546954364999,
        "compacted copy, unclean",
        "sequence",
        (
            "two_takers",
            "another_branch",
            "everything_lost_before_a_handoff",
            "lost_before_the_position_is_saved",
        ),
    ),
    (
        972943822398,
        "compacted copy, unclean",
        "sequence",
        ("another_branch", "others_where_all_copies_were", "foreign_in_between"),
    ),
    # Another client's record was where a lookup had placed the lane's ordinals
    (
        873235481929,
        "plain, old records",
        "sequence",
        ("removed_from_its_batch", "lost_and_cleaned", "later_batches_follow_lost_ones", "lost_and_expired"),
    ),
    # The log ended before the last acknowledged records, and nothing else showed that it had lost them
    (
        862150746223,
        "compacted copy, beside others, old records",
        "sequence",
        ("lost_while_idle", "bytes_after_the_next_holder"),
    ),
    # An interrupted comparison was to be repeated up to an end that the log no longer has
    (
        842680713216,
        "plain",
        "sequence",
        ("lost_beside_others", "isolation_changed", "last_records_cleaned_behind_a_filter", "lost_and_expired"),
    ),
    # The cleaner had removed the first records of an epoch that the source then lost
    (
        991549085779,
        "views of old records",
        "sequence",
        ("foreign_where_copies_were", "another_branch", "lease_before_a_fact_is_written"),
    ),
    # A refused record was replaced, and the map was rebuilt after it
    (
        708536653992,
        "plain, old records",
        "sequence",
        ("bytes_after_a_drain", "lost_before_a_comparison", "truncated_after_an_epoch", "letters_in_doubt"),
    ),
    # Bytes that were given up long ago put an old record over a newer one, because of which others had been left out
    (883119793995, "two views of old records", "sequence", ("cleaned_before_a_takeover", "isolation_changed")),
    # An election brought back a batch of which a comparison covered only some ordinals: the model was wrong
    (
        315986180958,
        "compacted copy, beside others, old records",
        "sequence",
        ("foreign_where_copies_were", "expired_while_away", "late_before_the_repeat"),
    ),
    # A compacted target went back, and both logs had lost the record because of which its cleaner had removed another
    (685468900213, "compacted copy, unclean", "at-least-once", ("election_while_idle", "lost_after_a_leap")),
    # The source lost sent records of a compacted copy and has others of an older epoch there: the lane halted
    (
        870716293843,
        "compacted copy, beside others, old records",
        "sequence",
        ("sought_before_a_takeover", "older_epoch_under_way", "election_in_the_sandwich"),
    ),
    # Lost records had given way to newer ones of other clients, and a rebuild asked again which are newer
    (
        1071435318232,
        "compacted copy, unclean",
        "sequence",
        ("everything_lost_before_a_handoff", "older_epoch_under_way", "unreplicated_at_the_start", "lost_twice"),
    ),
    # A rebuild planned to copy lost records again, and another client wrote newer ones before that
    (
        140793677896,
        "compacted copy, unclean, beside others",
        "sequence",
        ("leader_in_the_sandwich", "refused_batches_come_back"),
    ),
    # An election removed the last record that had been compared
    (338724541931, "compacted copy, beside others", "sequence", ("refused_batches_come_back",)),
    # A lane resumed below the ordinal of a hole's record, which then followed newer records
    (
        1017762067690,
        "plain, old records",
        "sequence",
        ("cleaned_before_a_takeover", "removed_from_its_batch", "newest_lost_on_both_sides"),
    ),
    # The cleaner had removed what was copied after a plan, and the next holder looked up only the records of the plan
    (
        683457929262,
        "compacted copy + source truncated",
        "at-least-once",
        (
            "removed_from_its_batch",
            "last_records_cleaned_behind_a_filter",
            "later_batches_follow_lost_ones",
            "newest_lost_on_both_sides",
        ),
    ),
    # The lane had to read the target because of an election, while a trap kept it from that: the trap was wrong
    (
        856469742184,
        "plain",
        "sequence",
        ("foreign_between_two_batches", "deleted_under_late_bytes", "refused_batches_come_back", "unreadable_gap"),
    ),
    # A holder ended before it had saved in which leader epoch a record had been appended: the model was wrong
    (
        996839726621,
        "compacted copy + source truncated",
        "at-least-once",
        (
            "batch_where_copies_were",
            "unreplicated_at_the_start",
            "election_while_idle",
            "sought_before_a_takeover",
        ),
    ),
    # The newest record of a key was lost on both sides, and a later one was appended in its place
    (
        566130636972,
        "plain, old records",
        "sequence",
        (
            "newest_lost_on_both_sides",
            "cleaned_before_a_takeover",
            "lost_beside_others",
            "later_batches_follow_lost_ones",
        ),
    ),
    (1018, "compacted copy, unclean", "sequence", ("newest_lost_on_both_sides",)),
    (1027, "compacted copy, unclean", "sequence", ("newest_lost_on_both_sides",)),
    (1060, "compacted copy, unclean", "sequence", ("newest_lost_on_both_sides",)),
    # A batch arrived after its ordinals had been assigned to other records, and the source had lost its records
    (909164034912, "sought, slow wire + late", "sequence", ("lost_before_the_first_fetch",)),
    (
        598980689517,
        "sought, slow wire + far, old records",
        "sequence",
        (
            "bytes_that_everyone_gave_up",
            "another_branch",
            "unreplicated_at_the_start",
            "others_where_all_copies_were",
        ),
    ),
)
"""Stories with traps (`tests.sim.traps`) that have as many steps as `bench.stories` plays."""
BEFORE_WRAP: tuple[tuple[int, str, Mode, tuple[str, ...], int], ...] = (
    # The target lost records that a rebuild had planned to copy again, and ordinals that it could not determine
    (
        385648048864,
        "compacted copy, unclean",
        "sequence",
        (
            "election_while_idle",
            "others_where_all_copies_were",
            "refused_batches_come_back",
            "election_in_the_sandwich",
            "refused_at_the_wrap",
        ),
        28,
    ),
    (
        334085989338,
        "unclean, old records",
        "sequence",
        ("batch_where_copies_were", "lost_before_the_first_fetch", "foreign_between_two_batches"),
        31,
    ),
    # Retention deleted another client's record, because of which lost records had been left out
    (
        606915920804,
        "target retention, old records",
        "at-least-once",
        ("isolation_changed", "cleaned_before_a_takeover", "in_doubt_at_the_wrap"),
        6,
    ),
)
"""The same, with the number of records before the lane's sequence numbers start again at 0."""
BESIDE_OTHERS: tuple[tuple[int, str, Mode, tuple[str, ...], int], ...] = (
    # The source lost records before those that a rebuild could not determine, and all epochs after them were unknown
    (
        231468765600,
        "plain, old records",
        "sequence",
        ("removed_under_a_former_holder", "removed_under_way", "removed_under_a_dead_holder", "another_branch"),
        3,
    ),
    # The source lost skipped records, and the lane read later ones at lower offsets, which it had to copy again
    (
        492800289121,
        "plain, old records",
        "sequence",
        ("lost_after_a_leap", "truncated_while_away", "lost_twice", "own_bytes_of_a_dead_connection"),
        3,
    ),
)
"""The same as `LONG`, with the number of clients that write to the target in transactions."""
STILL_FAILS: tuple[tuple[int, str, Mode, tuple[str, ...]], ...] = (
    # A record whose source offset a rebuild could not determine counts as older than a lost one with the same key
    (
        449855953242,
        "compacted copy, beside others, old records",
        "at-least-once",
        (
            "refused_batches_come_back",
            "unreplicated_at_the_start",
            "refused_and_forgotten",
            "a_gap_before_the_ledger_answers",
        ),
    ),
)
"""The same as `LONG`, of stories that still fail (docs/explanation/gaps.md, "Open cases")."""
LONG_STEPS = 300
