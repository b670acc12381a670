"""The settings with which a job begins its Spark session."""

import subprocess
from pathlib import Path

from mirrord.jobs.session import LOCAL, merged_settings

SAMPLE = Path(__file__).parents[3] / "conf" / "jobs" / "spark-submit.sh"


def test_a_session_on_this_machine_is_closed_to_others() -> None:
    made = merged_settings({}, is_submitted=False)
    assert (made["spark.master"], made["spark.driver.bindAddress"]) == (LOCAL, "127.0.0.1")
    assert merged_settings({"spark.driver.memory": "2g"}, is_submitted=False)["spark.driver.memory"] == "2g"


def test_another_master_decides_by_itself() -> None:
    made = merged_settings({"spark.master": "spark://host:7077"}, is_submitted=False)
    assert made["spark.master"] == "spark://host:7077"
    assert "spark.driver.host" not in made


def test_only_a_session_in_one_process_authenticates_by_itself() -> None:
    found = {
        master: "spark.authenticate" in merged_settings({"spark.master": master}, is_submitted=False)
        for master in ("local", "local[2]", "local[*]", "local-cluster[1,1,512]", "spark://host:7077", "yarn")
    }
    assert [master for master, own in found.items() if own] == ["local", "local[2]", "local[*]"]
    assert "spark.authenticate" in merged_settings({}, is_submitted=False)


def test_options_of_spark_submit_stay() -> None:
    assert merged_settings({}, is_submitted=True) == {}
    assert merged_settings({"spark.task.cpus": "2"}, is_submitted=True) == {"spark.task.cpus": "2"}


def test_the_sample_is_a_script() -> None:
    assert subprocess.run(["sh", "-n", str(SAMPLE)], check=False).returncode == 0
    assert SAMPLE.stat().st_mode & 0o111
