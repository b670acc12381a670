"""The campaign's variant `storm`: faults of all kinds on clusters of two and three brokers under steady load.

A run consists of chapters (`command`). Each chapter has its own seed and new clusters, and ends with a comparison of
all that was written (`chapter`). `kinds` is the table of all kinds of faults and of what each of them needs. `striking`
strikes at random and measures how long the copy is interrupted (`watch`). The other modules contain the strikes
themselves (`strikes`, `own_strikes`), the load (`load`), and the comparison (`judging`).
"""
