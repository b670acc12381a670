"""Secrets in Spark's settings reach Spark, and nobody else."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, sys
from contextlib import suppress
import psutil
from mirrord.config.jobs import spark_settings
from mirrord.jobs.session import open_session

settings = {"spark.master": "local[1]", "spark.hadoop.fs.s3a.secret.key": {"secret": f"file:{sys.argv[1]}"}}
with open_session("secrets", spark_settings(settings)) as session:
    context = session.sparkContext
    arguments, environments = [], []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            arguments.append(each.cmdline())
            environments.append(each.environ())
    hadoop = context._jsc.hadoopConfiguration().get("fs.s3a.secret.key")
    sums = context.parallelize(range(10), 2).map(lambda number: number + 1).sum()
    master, own = context.master, context.getConf().get("spark.authenticate")
print(json.dumps([hadoop, sums, master, own, arguments, environments]))
"""


def test_a_secret_is_in_no_arguments_and_no_environment(tmp_path: Path) -> None:
    secret = "AKIA-not-for-others"
    (tmp_path / "key").write_text(secret)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "key")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    hadoop, sums, master, own, arguments, environments = json.loads(done.stdout.splitlines()[-1])
    assert (hadoop, sums, master, own) == (secret, 55, "local[1]", "true")
    assert any("java" in " ".join(each) for each in arguments)
    assert secret not in json.dumps([arguments, environments])
    assert secret not in done.stderr
