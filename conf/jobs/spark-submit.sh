#!/bin/sh
# Runs a command as an application of spark-submit, if that is how jobs are submitted; its master and settings apply:
#   conf/jobs/spark-submit.sh audit /etc/mirrord/conf.toml --level digest
# PYSPARK_PYTHON is a Python with mirrord, the same on the driver and on the executors. The driver runs where the command
# is submitted. `mirrord audit --spark spark.master=spark://host:7077` does the same without spark-submit.
set -eu
: "${PYSPARK_PYTHON:=python3}" "${MASTER:=spark://host:7077}"
export PYSPARK_PYTHON
verbs=$("$PYSPARK_PYTHON" -c 'import mirrord.cli.main as main; print(main.__file__)')
exec spark-submit --master "$MASTER" --deploy-mode client --conf spark.executor.memory=1g "$verbs" "$@"
