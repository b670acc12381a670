"""What `bench.run` and `bench.paired` measure, one module per question. Each has its figures as structs, and a function
that measures them on clusters of the lab."""
