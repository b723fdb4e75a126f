"""`infercast launch` prints the command, or writes the file, of the deployment that was asked about."""

import shlex

import pytest
import yaml

from simulator import deploy
from simulator.deployment.launch_command import launch_command
from tests.support.commands import infercast, printed, refused

ASKED = ("launch", "--model", "llama-3.1-8b", "--hardware", "l40s")


def test_the_command_is_that_of_the_deployment():
    wanted = shlex.split(launch_command(deploy("llama-3.1-8b", "l40s")))
    assert shlex.split(printed(*ASKED, COLUMNS="60").replace("\\\n", "")) == wanted


def test_a_command_over_two_hosts_says_where_to_type_it():
    asked = ("launch", "--model", "deepseek-v3", "--hardware", "h100-sxm", "--tp", "16")
    note, command = printed(*asked, COLUMNS="120").split("\n", 1)
    assert note == (
        "# On each of 2 hosts: NODE_RANK is its number from 0, HEAD_IP the first's address, "
        "and the others take --headless."
    )
    assert command.startswith("vllm serve ")


def test_the_checkpoint_that_was_typed_is_started():
    asked = ("launch", "--model", "Qwen/Qwen3-32B-AWQ", "--hardware", "rtx-5090")
    assert printed(*asked).startswith("vllm serve Qwen/Qwen3-32B-AWQ --max-model-len")
    assert "- Qwen/Qwen3-32B-AWQ\n" in printed(*asked, "--as", "compose")
    assert printed(*asked, "--weight-dtype", "int4") == printed(*asked)
    assert "'<Qwen/Qwen3-32B in nvfp4>'" in printed(*asked, "--weight-dtype", "nvfp4")


@pytest.mark.parametrize(
    ("model", "engine", "started"),
    [
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8", "vllm", "vllm serve RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8 --max"),
        ("NousResearch/Meta-Llama-3.1-8B", "sglang", "--model-path NousResearch/Meta-Llama-3.1-8B --max"),
        ("https://huggingface.co/Qwen/Qwen3-32B-AWQ", "tensorrt-llm", "trtllm-serve Qwen/Qwen3-32B-AWQ --max"),
        ("lmstudio-community/Qwen3-8B-MLX-4bit", "mlx-lm", "--model lmstudio-community/Qwen3-8B-MLX-4bit"),
        ("Qwen/Qwen3-8B", "mlx-lm", "--model Qwen/Qwen3-8B"),
        ("model_profiles/llama-3.1-8b.yaml", "vllm", "vllm serve meta-llama/Llama-3.1-8B-Instruct --max"),
    ],
)
def test_what_was_typed_is_started_as_it_is_stored(model, engine, started):
    hardware = "m4-max" if engine == "mlx-lm" else "h100-sxm"
    text = printed("launch", "--model", model, "--hardware", hardware, "--engine", engine)
    assert started in " ".join(text.replace("\\\n", "").split())
    assert "--quantization" not in text


def test_a_file_is_written_or_printed(tmp_path):
    text = printed(*ASKED, "--as", "kubernetes", "--image", "mine/vllm:1")
    done = infercast(*ASKED, "--as", "kubernetes", "--image", "mine/vllm:1", "--out", str(tmp_path / "pod.yaml"))
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "pod.yaml").read_text() == text
    first, _ = yaml.safe_load_all(text)
    assert first["spec"]["template"]["spec"]["containers"][0]["image"] == "mine/vllm:1"
    assert "cannot be written" in refused(*ASKED, "--as", "compose", "--out", str(tmp_path / "pod.yaml" / "file.yaml"))


def test_several_deployments_are_refused():
    assert "one is asked about" in refused(*ASKED[:-1], "l40s,h100-sxm", "--as", "compose")


def test_options_of_files_are_refused_of_a_command():
    assert "--replicas 4 without --as: it would change nothing" in refused(*ASKED, "--replicas", "4")
    assert "--image foo:1 without --as: it would change nothing" in refused(*ASKED, "--image", "foo:1")
